"""A client of registries (the distribution protocol, version 2): manifests and blobs; tokens, redirects, retries.

Each request has a connection of its own. A registry is reached by TLS; plain HTTP is for loopback addresses, and for
those that the settings name. Credentials go to the registry and to the token server that it names, never along with a
redirect to another host, and not over plain HTTP to another machine. Faults are ``ImageFailure``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import BinaryIO, TypeVar
from urllib.parse import SplitResult, urlencode, urljoin, urlsplit

import orjson

import shoal
from shoal.base import proxies
from shoal.base.clock import Clock
from shoal.base.http1.answer import HttpAnswer
from shoal.base.http1.dial import HttpAddress, dial
from shoal.base.http1.errors import Disconnected, TransportError, Unreachable
from shoal.base.http1.limits import AnswerLimits, Deadlines
from shoal.base.http1.messages import request_bytes
from shoal.node.runtime.images.config import ImageConfig
from shoal.node.runtime.images.manifests import INDEX_TYPES, MANIFEST_TYPES, MOST_MANIFEST_BYTES, Descriptor
from shoal.node.runtime.images.references import HUB
from shoal.node.runtime.model import ImageFailure, ImageFault, RegistryCredentials
from shoal.node.runtime.process.images import ImageReference

_HUB_SERVER = "registry-1.docker.io"
_REDIRECTS = 5
_MOST_WAIT_S = 10.0
_TOKEN_BYTES = 1 << 20
_PIECE = 1 << 20
_PROGRESS_BYTES = 64 << 10  # with less, an attempt has failed
_AGAIN = (408, 429, 500, 502, 503, 504)
_REDIRECT = (301, 302, 303, 307, 308)
_PARAMETER = re.compile(r'([a-zA-Z_]+)="((?:[^"\\]|\\.)*)"|([a-zA-Z_]+)=([^\s,"]+)')
_RANGE = re.compile(r"bytes (\d+)-\d+/(?:\d+|\*)")

T = TypeVar("T")
OnBytes = Callable[[int], None]


@dataclass(slots=True)
class _Access:
    """What opens one repository, found out on the way."""

    credentials: RegistryCredentials | None
    authorization: str = ""
    base: str = ""  # scheme and host that have answered


class _Failed(Exception):
    """One attempt has failed in a way that the next one may not."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


@dataclass(slots=True)
class Repository:
    """One repository of a registry, for one pull."""

    reference: ImageReference
    config: ImageConfig
    clock: Clock
    credentials: RegistryCredentials | None = None
    _access: _Access = field(init=False)

    def __post_init__(self) -> None:
        self._access = _Access(self.credentials)

    async def manifest(self, reference: str) -> tuple[bytes, str]:
        """A manifest or an index by tag or digest, with its type. One asked for by digest has that digest."""

        async def once() -> tuple[bytes, str]:
            accept = ", ".join((*MANIFEST_TYPES, *INDEX_TYPES))
            async with self._open(f"manifests/{reference}", {"accept": accept}, MOST_MANIFEST_BYTES) as answer:
                self._check(answer, f"{self._path}:{reference}" if ":" not in reference else reference)
                body = await answer.body()
                return body, answer.headers.get("content-type", "").partition(";")[0].strip()

        body, kind = await self._tried(once)
        if ":" in reference and (found := f"sha256:{hashlib.sha256(body).hexdigest()}") != reference:
            raise ImageFailure(ImageFault.PULL, f"{self._host} sent a manifest with the digest {found} for {reference}")
        return body, kind

    async def blob(self, wanted: Descriptor, path: Path, on_bytes: OnBytes = lambda _: None) -> None:
        """Fetch a blob to a file, which may have the beginning of it already; it goes on there. When this returns, the
        file has the digest; a file with another one is deleted."""
        done, tried = _size(path), 0
        while done < wanted.size:
            try:
                await self._rest(wanted, path, on_bytes)
            except (_Failed, Disconnected, Unreachable) as error:
                now = _size(path)
                tried = 0 if now - done >= _PROGRESS_BYTES else tried + 1
                done = now
                if tried >= self.config.attempts:
                    raise ImageFailure(ImageFault.REGISTRY, f"fetching {wanted.digest} failed: {error}") from error
                await self._wait(tried, error)
            else:
                done = _size(path)
        found = await asyncio.to_thread(_digest_of, path)
        if done != wanted.size or found != wanted.digest:
            _drop(path)
            raise ImageFailure(
                ImageFault.PULL,
                f"{self._host} sent {done} bytes with the digest {found} for {wanted.digest} of {wanted.size} bytes",
            )

    async def small(self, wanted: Descriptor, most_bytes: int) -> bytes:
        """A blob that fits into memory."""

        async def once() -> bytes:
            async with self._open(f"blobs/{wanted.digest}", {}, most_bytes) as answer:
                self._check(answer, wanted.digest)
                return await answer.body()

        if wanted.size > most_bytes:
            raise ImageFailure(ImageFault.PULL, f"{wanted.digest} has {wanted.size} bytes; the limit is {most_bytes}")
        body = await self._tried(once)
        if (found := f"sha256:{hashlib.sha256(body).hexdigest()}") != wanted.digest:
            raise ImageFailure(ImageFault.PULL, f"{self._host} sent a blob with the digest {found} for {wanted.digest}")
        return body

    async def _rest(self, wanted: Descriptor, path: Path, on_bytes: OnBytes) -> None:
        if _size(path) > wanted.size:
            _drop(path)
        start = max(0, _size(path))
        headers = {"range": f"bytes={start}-"} if start else {}
        async with self._open(f"blobs/{wanted.digest}", headers, None) as answer:
            if start and answer.status == 416:
                _drop(path)
                raise _Failed("the registry does not send the rest of it")
            self._check(answer, wanted.digest)
            sent = _RANGE.fullmatch(answer.headers.get("content-range", ""))
            begins = int(sent[1]) if answer.status == 206 and sent else 0
            if begins not in (0, start):
                raise _Failed(f"the registry sent bytes from {begins} on instead of {start}")
            with _opened(path, begins) as file:
                await self._copy(answer, file.write, wanted.size - begins, on_bytes)

    async def _copy(self, answer: HttpAnswer, write: Callable[[bytes], int], left: int, on_bytes: OnBytes) -> None:
        """Everything that has come is written, also if the rest does not come."""
        waiting: list[bytes] = []
        count = 0
        try:
            async for piece in answer.chunks():
                if len(piece) > left:
                    raise ImageFailure(ImageFault.PULL, f"{self._host} sent more bytes than the image's manifest says")
                left -= len(piece)
                count += len(piece)
                waiting.append(piece)
                if count >= _PIECE:
                    await asyncio.to_thread(write, b"".join(waiting))
                    on_bytes(count)
                    waiting, count = [], 0
        finally:
            write(b"".join(waiting))
            on_bytes(count)
        if left:
            raise _Failed(f"the registry ended {left} bytes early")

    # requests

    @property
    def _host(self) -> str:
        return self.reference.host

    @property
    def _path(self) -> str:
        return self.reference.path

    async def _tried(self, once: Callable[[], Awaitable[T]]) -> T:
        tried = 0
        while True:
            try:
                return await once()
            except (_Failed, TransportError) as error:
                tried += 1
                if tried >= self.config.attempts or _is_final(error):
                    raise ImageFailure(ImageFault.REGISTRY, str(error)) from error
                await self._wait(tried, error)

    async def _wait(self, tried: int, error: Exception) -> None:
        asked_s = error.after_s if isinstance(error, _Failed) else None
        await self.clock.sleep(
            min(_MOST_WAIT_S, self.config.retry_s * 2 ** max(0, tried - 1) if asked_s is None else asked_s)
        )

    def _check(self, answer: HttpAnswer, what: str) -> None:
        """Raises for every answer that does not bring what was asked for."""
        status, host = answer.status, self._host
        if status in (200, 206):
            return
        if status in (401, 403):
            with_what = "with these credentials" if self.credentials is not None else "without credentials"
            raise ImageFailure(
                ImageFault.PULL,
                f"{host} refuses access to {self._path} {with_what}: it does not exist, or needs imagePullSecrets",
            )
        if status == 404:
            raise ImageFailure(ImageFault.PULL, f"{what} not found: {host} does not have it")
        if status in _AGAIN:
            after = answer.headers.get("retry-after", "")
            raise _Failed(f"{host} answered {status}", float(after) if after.isdigit() else None)
        raise ImageFailure(ImageFault.PULL, f"{host} answered {status} for {what}")

    @asynccontextmanager
    async def _open(self, tail: str, headers: Mapping[str, str], most_bytes: int | None) -> AsyncIterator[HttpAnswer]:
        """The answer to a request below the repository; signs in where the registry asks for it, once."""
        for again in (True, False):
            base = await self._base()
            async with self._get(
                f"{base}/v2/{self._path}/{tail}", headers, most_bytes, self._access.authorization
            ) as answer:
                if answer.status != 401 or not again:
                    yield answer
                    return
                challenge = answer.headers.get("www-authenticate", "")
            self._access.authorization = await self._sign_in(challenge, base)

    async def _base(self) -> str:
        """Scheme and host. On a loopback address a registry without TLS is used too."""
        if self._access.base:
            return self._access.base
        server = _HUB_SERVER if self._host == HUB else self._host
        if self.config.registry(self._host).insecure:
            self._access.base = f"http://{server}"
            return self._access.base
        found = f"https://{server}"
        if _is_loopback(urlsplit(found).hostname or ""):
            try:
                async with self._get(f"{found}/v2/", {}, None, ""):
                    pass
            except (TransportError, OSError) as error:
                if not _speaks_no_tls(error):
                    raise
                found = f"http://{server}"
        self._access.base = found
        return found

    async def _sign_in(self, challenge: str, base: str) -> str:
        """The value of the header Authorization that the challenge asks for."""
        kind, _, rest = challenge.partition(" ")
        basic = _basic(self.credentials)
        if kind.lower() == "basic":
            return basic
        if kind.lower() != "bearer":
            return ""
        found = {m[1] or m[3]: m[2] if m[1] else m[4] for m in _PARAMETER.finditer(rest)}
        realm = urlsplit(urljoin(f"{base}/", found.get("realm", "")))
        if realm.scheme != "https" and not self._may_be_plain(realm):
            raise ImageFailure(
                ImageFault.PULL,
                f"{self._host} names a token server without TLS, {realm.netloc[:200]}: use https",
            )
        query = {"service": found.get("service", ""), "scope": f"repository:{self._path}:pull"}
        url = f"{realm.scheme}://{realm.netloc}{realm.path}?{'&'.join(filter(None, (realm.query, urlencode(query))))}"
        async with self._get(url, {"accept": "application/json"}, _TOKEN_BYTES, basic) as answer:
            if answer.status in _AGAIN:
                raise _Failed(f"the token server {realm.netloc} answered {answer.status}")
            if answer.status != 200:
                raise ImageFailure(
                    ImageFault.PULL,
                    f"{self._host} gives no access to {self._path}: its token server answered {answer.status}; "
                    f"check imagePullSecrets",
                )
            body = await answer.body()
        try:
            content = orjson.loads(body)
            token = content.get("token") or content.get("access_token")
        except (ValueError, AttributeError):
            token = None
        if not isinstance(token, str) or not token.isprintable():
            raise ImageFailure(ImageFault.PULL, f"the token server {realm.netloc} sent no token")
        return f"Bearer {token}"

    @asynccontextmanager
    async def _get(
        self, url: str, headers: Mapping[str, str], most_bytes: int | None, authorization: str
    ) -> AsyncIterator[HttpAnswer]:
        """The answer to one request, after redirects."""
        first = urlsplit(url)
        for _ in range(_REDIRECTS + 1):
            place = urlsplit(url)
            if not place.hostname or (place.scheme != "https" and not self._may_be_plain(place)):
                raise ImageFailure(
                    ImageFault.PULL, f"{self._host} leads to {place.scheme}://{place.netloc[:200]}: use https"
                )
            sent = {"host": place.netloc.rpartition("@")[2], "user-agent": f"shoal/{shoal.__version__}", **headers}
            if authorization and (place.scheme, place.netloc) == (first.scheme, first.netloc):
                sent["authorization"] = authorization
            async with self._asked(place, sent, most_bytes) as answer:
                if answer.status not in _REDIRECT or "location" not in answer.headers:
                    yield answer
                    return
                url = urljoin(url, answer.headers["location"])
        raise ImageFailure(ImageFault.PULL, f"{self._host} redirects more than {_REDIRECTS} times")

    @asynccontextmanager
    async def _asked(
        self, place: SplitResult, headers: Mapping[str, str], most_bytes: int | None
    ) -> AsyncIterator[HttpAnswer]:
        config, secure = self.config, place.scheme == "https"
        try:
            port = place.port or (443 if secure else 80)
            target = place.path + (f"?{place.query}" if place.query else "")
            data = request_bytes("GET", target or "/", headers.items())
        except ValueError as error:
            raise ImageFailure(ImageFault.PULL, f"{self._host} leads to an invalid address: {error}") from error
        try:
            proxy = proxies.for_host(place.hostname or "", port) if secure else None
        except OSError as error:
            raise ImageFailure(ImageFault.REGISTRY, str(error)) from error
        tls = self._context(place.hostname or "", port) if secure else None
        connection = await dial(
            HttpAddress(place.hostname or "", port, tls, proxy=proxy), clock=self.clock, connect_s=config.connect_s,
            limits=AnswerLimits(body_bytes=most_bytes),
        )  # fmt: skip
        try:
            yield await connection.stream(data, Deadlines(head_s=config.stall_s, idle_s=config.stall_s))
        finally:
            await connection.close()

    def _may_be_plain(self, place: SplitResult) -> bool:
        """Whether an address may be used without TLS."""
        if place.scheme != "http":
            return False
        insecure = self.config.registry(place.netloc).insecure
        return insecure or (
            _is_loopback(place.hostname or "") and _is_loopback(urlsplit(f"//{self._host}").hostname or "")
        )

    def _context(self, host: str, port: int) -> ssl.SSLContext:
        settings = self.config.registries
        found = settings.get(f"{host}:{port}") or settings.get(host) or self.config.registry(self._host)
        try:
            return ssl.create_default_context(cafile=str(found.ca) if found.ca is not None else None)
        except (ssl.SSLError, OSError) as error:
            raise ImageFailure(
                ImageFault.REGISTRY, f"the certificates in {found.ca} cannot be used: {error}"
            ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _speaks_no_tls(error: BaseException) -> bool:
    """Whether something answered that is not TLS; a certificate that is not trusted is another matter."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return not isinstance(cause, ssl.SSLCertVerificationError)
        if isinstance(cause, ConnectionResetError):
            return True
        cause = cause.__cause__
    return False


def _is_final(error: Exception) -> bool:
    """Trying again does not help."""
    cause = error.__cause__
    return isinstance(cause, ssl.SSLCertVerificationError)


def _basic(credentials: RegistryCredentials | None) -> str:
    if credentials is None or not credentials.username:
        return ""
    pair = f"{credentials.username}:{credentials.password}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _size(path: Path) -> int:
    """Of a part; -1 if there is none, so that an empty blob is fetched too."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return -1


def _opened(path: Path, begins: int) -> BinaryIO:
    """A file to go on with from there."""
    file = path.open("r+b" if path.exists() else "wb")
    file.truncate(begins)
    file.seek(begins)
    return file


def _drop(path: Path) -> None:
    path.unlink(missing_ok=True)
