"""Master keys in HashiCorp Vault: either they never leave it (transit engine), or it keeps them for us (KV, version 2).

Transit    Vault wraps and unwraps data keys. The id of a master key is the name and the version of Vault's key, so a
           key that was rotated in Vault is another master key here, too.
KV         a field of a secret holds the key in base64; the newest version seals, older ones still open. Once read they
           are in memory, and Vault may be away.

Calls run in a few threads of their own, since the library waits. A call has a deadline, and after one that failed the
next ones fail at once for a while, so that requests without secrets are not delayed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from os import urandom
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoal.base.breaker import Breaker, BreakerState
from shoal.base.clock import Clock
from shoal.base.ids import RandomBytes
from shoal.base.logs import get_logger
from shoal.control.secrets.masters import KeysAway, MasterKey, MasterKeyRing, UnknownMasterKey, Wrapped, parse_keys
from shoal.errors import ConfigError, ServiceUnavailable, ShoalError
from shoal.sync.sealing import KEY_BYTES, CannotOpen, new_key

_THREADS = 4
_OLDER_VERSIONS = 9  # Vault's default number of versions per secret
_TIMEOUT_S = 3.0
_PREFIX = "vault:v"
_HEALTH = {200: "active", 429: "standby", 472: "standby", 473: "standby", 501: "not initialized", 503: "sealed"}
LOOPBACK = {"localhost", "127.0.0.1", "::1"}

_log = get_logger("control.secrets.vault")


class VaultRefused(ShoalError):
    """Vault answered, and the answer is no."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultConfig:
    """How to reach Vault. The token is read anew for each call where it is in a file: another process renews it."""

    address: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    ca: str = ""  # a file or a folder of certificates
    namespace: str = ""
    timeout_s: float = _TIMEOUT_S
    probe_timeout_s: float = 0.5  # of the call that finds out whether it is back
    pause_s: float = 5.0  # between such calls

    @classmethod
    def from_environ(cls, address: str, environ: Mapping[str, str]) -> VaultConfig:
        """With what Vault's own tools take from the environment."""
        found = cls(
            address=address,
            token=environ.get("VAULT_TOKEN", ""),
            token_file=environ.get("VAULT_TOKEN_FILE", ""),
            ca=environ.get("VAULT_CACERT", "") or environ.get("VAULT_CAPATH", ""),
            namespace=environ.get("VAULT_NAMESPACE", ""),
            timeout_s=_seconds(environ.get("VAULT_CLIENT_TIMEOUT", "") or f"{_TIMEOUT_S}"),
        )
        if not found.token and not found.token_file:
            raise ConfigError("VAULT_TOKEN is not set: set it, or VAULT_TOKEN_FILE to the path of a file with a token")
        if found.ca and not Path(found.ca).exists():
            raise ConfigError(f"VAULT_CACERT is {found.ca!r}: there is no such file")
        found.current_token()
        return found

    def current_token(self) -> str:
        if not self.token_file:
            return self.token
        try:
            token = Path(self.token_file).read_text().strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "not text"
            raise ConfigError(f"VAULT_TOKEN_FILE is {self.token_file!r}: {why}") from None
        if not token:
            raise ConfigError(f"VAULT_TOKEN_FILE is {self.token_file!r}: the file is empty")
        return token


def _seconds(text: str) -> float:
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= 60.0:
        raise ConfigError(f"VAULT_CLIENT_TIMEOUT is {text!r}: use a number of seconds up to 60, such as 3s")
    return seconds


class Vault:
    """Calls to one Vault."""

    def __init__(self, config: VaultConfig, *, clock: Clock) -> None:
        self.config = config
        self.where = f"Vault at {urlsplit(config.address).netloc}"
        self._breaker = Breaker(self.where, clock=clock, threshold=1, open_s=config.pause_s)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="vault")
        self._own = threading.local()
        import_module("hvac")  # takes longer than a call, so not within the deadline of the first one

    def __repr__(self) -> str:
        return f"Vault({self.config.address})"

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, do: Callable[[Any], Any]) -> Any:
        """What ``do`` gives when it is called with a client. Raises ``VaultRefused`` or ``KeysAway``."""
        probing = self._breaker.state is not BreakerState.CLOSED
        timeout_s = self.config.probe_timeout_s if probing else self.config.timeout_s
        try:
            with self._breaker:
                answer = await self._asked(do, timeout_s)
        except KeysAway:
            raise
        except ServiceUnavailable as error:
            raise KeysAway(self.where, error.message) from None
        if isinstance(answer, VaultRefused):
            raise answer
        return answer

    async def health(self) -> str:
        """``active``, ``standby``, ``sealed``, ``not initialized``, or why it cannot be told."""
        try:
            answer = await self.call(lambda client: client.sys.read_health_status(method="HEAD"))
        except (KeysAway, VaultRefused) as error:
            return str(error)
        return _HEALTH.get(answer.status_code, f"answers {answer.status_code}")

    async def _asked(self, do: Callable[[Any], Any], timeout_s: float) -> Any:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await loop.run_in_executor(self._threads, self._ask, do, timeout_s)
        except TimeoutError:
            answer = f"no answer within {timeout_s:g} s"
        if isinstance(answer, str):
            raise KeysAway(self.where, answer)
        return answer

    def _ask(self, do: Callable[[Any], Any], timeout_s: float) -> Any:
        """In a thread. An answer, ``VaultRefused``, or why there is none: errors of the library hold what was sent, so
        none of them goes further than this."""
        from hvac.exceptions import VaultError
        from requests.exceptions import RequestException

        try:
            return do(self._client(timeout_s))
        except ConfigError as error:
            return str(error)
        except VaultError as error:
            code, message = _status(error), _message(error)
            return f"{code} {message}" if code == 429 or code >= 500 else VaultRefused(code, message)
        except (RequestException, OSError) as error:
            return _transport(error)
        except ValueError:
            return "the answer is not a valid Vault answer"

    def _client(self, timeout_s: float) -> Any:
        import hvac

        client = getattr(self._own, "client", None)
        if client is None:
            config = self.config
            client = self._own.client = hvac.Client(
                url=config.address, token="", verify=config.ca or True, namespace=config.namespace or None
            )
            # What the environment says of proxies is not meant for this machine.
            client.adapter.session.trust_env = urlsplit(config.address).hostname not in LOOPBACK
        client.token = self.config.current_token()
        client.adapter._kwargs["timeout"] = timeout_s  # there is no other way to set it for a call
        return client


def _status(error: Any) -> int:
    """The library has a class for most codes, and keeps the number of none."""
    from hvac import exceptions

    codes: dict[type, int] = {
        exceptions.InvalidRequest: 400, exceptions.Unauthorized: 401, exceptions.Forbidden: 403,
        exceptions.InvalidPath: 404, exceptions.RateLimitExceeded: 429, exceptions.InternalServerError: 500,
        exceptions.VaultNotInitialized: 501, exceptions.BadGateway: 502, exceptions.VaultDown: 503,
    }  # fmt: skip
    return codes.get(type(error), 500)


def _message(error: Any) -> str:
    found = error.errors if isinstance(error.errors, list) else [error.errors]
    return "; ".join(str(one) for one in found if one) or "no reason given"


def _transport(error: Exception) -> str:
    from requests.exceptions import ConnectTimeout, ReadTimeout, SSLError

    if isinstance(error, SSLError):
        return "its certificate cannot be verified; set VAULT_CACERT"
    if isinstance(error, ConnectTimeout | ReadTimeout):
        return "no answer in time"
    return "cannot be reached"


class TransitKeys:
    """A key of the transit engine. Needs ``update`` on ``encrypt/NAME`` and ``decrypt/NAME``."""

    def __init__(self, vault: Vault, name: str, *, mount: str = "transit", random_bytes: RandomBytes = urandom) -> None:
        self.where = f"{vault.where}, {mount}/{name}"
        self._vault = vault
        self._name = name
        self._mount = mount
        self._random_bytes = random_bytes
        # Without the address: Vault may move.
        self._id = f"transit-{hashlib.sha256(f'{mount}/{name}'.encode()).hexdigest()[:16]}-v"

    def __repr__(self) -> str:
        return f"TransitKeys({self.where})"

    async def check(self) -> None:
        """Both ways, with a key that is thrown away."""
        probe = new_key(self._random_bytes)
        try:
            same = await self._decrypted((await self._encrypted(probe)).data_key) == probe
        except VaultRefused as error:
            raise ConfigError(f"master_key names {self.where}: {error}; {self._fix(error)}") from None
        if not same:
            raise ConfigError(f"master_key names {self.where}: decrypting a test value did not return it")

    async def current(self) -> str:
        return (await self.wrap(new_key(self._random_bytes))).master_key  # only an answer shows the version

    async def wrap(self, data_key: bytes) -> Wrapped:
        try:
            return await self._encrypted(data_key)
        except VaultRefused as error:
            raise KeysAway(self.where, f"{error}; {self._fix(error)}") from None

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        if not wrapped.master_key.startswith(self._id):
            raise UnknownMasterKey(wrapped.master_key, self.where)
        try:
            key = await self._decrypted(wrapped.data_key)
        except VaultRefused as error:
            if error.code == 400:
                raise CannotOpen(f"{self.where} cannot unwrap the data key: {error}") from None
            raise KeysAway(self.where, f"{error}; {self._fix(error)}") from None
        if key is None or len(key) != KEY_BYTES:
            raise CannotOpen(f"{self.where} returned a value that is not a data key")
        return key

    async def renew(self) -> str:
        try:
            await self._vault.call(
                lambda client: client.secrets.transit.rotate_key(self._name, mount_point=self._mount)
            )
        except VaultRefused as error:
            raise ConfigError(
                f"{self.where} cannot be rotated by Shoal: {error}; run `vault write -f {self._mount}/keys/"
                f"{self._name}/rotate`, and rotate without making a new key"
            ) from None
        return await self.current()

    async def close(self) -> None:
        await self._vault.close()

    async def _encrypted(self, data_key: bytes) -> Wrapped:
        plain = base64.b64encode(data_key).decode()
        answer = await self._vault.call(
            lambda client: client.secrets.transit.encrypt_data(self._name, plaintext=plain, mount_point=self._mount)
        )
        text = _at(answer, "data", "ciphertext")
        version = text[len(_PREFIX) :].partition(":")[0] if isinstance(text, str) and text.startswith(_PREFIX) else ""
        if not version.isdigit():
            raise KeysAway(self.where, "the answer is not a valid Vault answer")
        return Wrapped(f"{self._id}{version}", text.encode())

    async def _decrypted(self, wrapped: bytes) -> bytes | None:
        text = wrapped.decode("ascii", "replace")
        answer = await self._vault.call(
            lambda client: client.secrets.transit.decrypt_data(self._name, ciphertext=text, mount_point=self._mount)
        )
        return _decoded(_at(answer, "data", "plaintext"))

    def _fix(self, error: VaultRefused) -> str:
        if error.code in (401, 403):
            return "give the token a policy with `update` on encrypt and decrypt of this key"
        return f"make the key with `vault write -f {self._mount}/keys/{self._name}`"


class KvKeys:
    """A field of a secret of the KV engine, version 2. Needs ``read`` on ``data/PATH``."""

    def __init__(
        self,
        vault: Vault,
        path: str,
        *,
        clock: Clock,
        mount: str = "kv",
        key_field: str = "key",
        read_again_s: float = 60.0,
        random_bytes: RandomBytes = urandom,
    ) -> None:
        self.where = f"{vault.where}, {mount}/{path}"
        self._vault = vault
        self._path = path
        self._mount = mount
        self._field = key_field
        self._clock = clock
        self._read_again_s = read_again_s
        self._random_bytes = random_bytes
        self._versions: dict[int, MasterKey] = {}
        self._ring: MasterKeyRing | None = None
        self._read_at = 0.0  # monotonic
        self._reading = asyncio.Lock()

    def __repr__(self) -> str:
        return f"KvKeys({self.where})"

    async def check(self) -> None:
        try:
            await self._read()
        except VaultRefused as error:
            raise ConfigError(f"master_key names {self.where}: {error}; {self._fix(error)}") from None

    async def current(self) -> str:
        return (await self._fresh(self._read_again_s)).current.id

    async def wrap(self, data_key: bytes) -> Wrapped:
        return (await self._fresh(self._read_again_s)).current.wrap(data_key, self._random_bytes)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        ring = self._ring
        if ring is None or wrapped.master_key not in ring:
            ring = await self._fresh(self._vault.config.pause_s)
        return ring.unwrap(wrapped, self.where)

    async def renew(self) -> str:
        raise ConfigError(
            f"{self.where} cannot be changed by Shoal: run `vault kv put -mount={self._mount} {self._path} "
            f"{self._field}=$(openssl rand -base64 32)`, and rotate without making a new key"
        )

    async def close(self) -> None:
        await self._vault.close()

    async def _fresh(self, older_than_s: float) -> MasterKeyRing:
        """The keys, read again if that was long ago. Those that are known stay good while Vault is away."""
        async with self._reading:
            if self._ring is not None and self._clock.monotonic() - self._read_at < older_than_s:
                return self._ring
            try:
                return await self._read()
            except (KeysAway, VaultRefused, ConfigError) as error:
                if self._ring is None:
                    if isinstance(error, KeysAway):
                        raise
                    raise KeysAway(self.where, str(error)) from None
                _log.warning(
                    "master keys cannot be read; using the last known ones", where=self.where, error=str(error)
                )
                self._read_at = self._clock.monotonic()
                return self._ring

    async def _read(self) -> MasterKeyRing:
        version, key = await self._version(None)
        if key is None:
            raise VaultRefused(404, "the newest version was deleted")
        found = {version: key}
        for older in range(version - 1, max(0, version - 1 - _OLDER_VERSIONS), -1):
            kept = self._versions.get(older)
            if kept is None:
                _, kept = await self._version(older)
            if kept is not None:
                found[older] = kept
        if self._ring is None or self._ring.current.id != key.id:
            _log.info("master keys were read", where=self.where, master_key=key.id)
        self._versions, self._ring = found, MasterKeyRing(found.values())
        self._read_at = self._clock.monotonic()
        return self._ring

    async def _version(self, version: int | None) -> tuple[int, MasterKey | None]:
        """None for a key that was deleted."""
        try:
            answer = await self._vault.call(
                lambda client: client.secrets.kv.v2.read_secret_version(
                    self._path, version=version, mount_point=self._mount, raise_on_deleted_version=True
                )
            )
        except VaultRefused as error:
            if version is not None and error.code == 404:
                return version, None
            raise
        number, text = _at(answer, "data", "metadata", "version"), _at(answer, "data", "data", self._field)
        if not isinstance(number, int) or not isinstance(text, str):
            raise ConfigError(
                f"master_key names {self.where}: the field {self._field!r} has no text; name the field with "
                "?field=NAME, and use version 2 of the KV engine"
            )
        return number, parse_keys(text, f"{self.where}, version {number},").current

    def _fix(self, error: VaultRefused) -> str:
        if error.code in (401, 403):
            return f"give the token a policy with `read` on {self._mount}/data/{self._path}"
        return (
            f"put a key there with `vault kv put -mount={self._mount} {self._path} "
            f"{self._field}=$(openssl rand -base64 32)`"
        )


def _at(answer: Any, *names: str) -> Any:
    for name in names:
        answer = answer.get(name) if isinstance(answer, dict) else None
    return answer


def _decoded(text: Any) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None
