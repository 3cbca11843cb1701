"""Credentials that may change while a process runs: token files, exec plugins; and the TLS context they lead to.

``Credentials`` answers two questions for each request: which ``Authorization`` header, and which client certificate.
Answers are kept until a file changes or a plugin's credential expires; ``renew`` is for a server that said 401.
A configuration that can be read again, such as a kubeconfig, is then read again too.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client.config import AccessConfig, ExecPlugin
from shoal.errors import ConfigError, Unauthorized
from shoal.kube.times import parse_epoch

_EXEC_BUDGET_S = 60.0
_LOOK_EVERY_S = 1.0  # at a token file
_EARLY_S = 10.0  # a credential that ends within this is asked for again
_RENEW_EVERY_S = 5.0  # a plugin or a file whose credentials are refused is not asked more often

log = get_logger("client.credentials")


@dataclass(frozen=True, slots=True)
class Identity:
    """The credentials of a request. ``certificate`` is PEM, certificate and key."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""


class Credentials(Protocol):
    """Where identities come from."""

    async def identity(self) -> Identity: ...

    def renew(self, refused: Identity) -> None:
        """The server refused this identity: the next one may be another, if there is a newer one."""


def credentials_of(config: AccessConfig, *, clock: Clock) -> Credentials:
    """The source that a configuration asks for; an explicit token or password is preferred to a plugin."""
    given = Identity(certificate=config.client_cert_pem, key=config.client_key_pem)
    if config.token_file:
        return TokenFile(Path(config.token_file), given, clock=clock)
    if config.token:
        return FixedCredentials(Identity(f"Bearer {config.token}", given.certificate, given.key))
    if config.username:
        pair = base64.b64encode(f"{config.username}:{config.password}".encode()).decode()
        return FixedCredentials(Identity(f"Basic {pair}", given.certificate, given.key))
    if config.exec_plugin is not None:
        return ExecCredentials(config.exec_plugin, given, clock=clock)
    return FixedCredentials(given)


class FixedCredentials:
    """Never changes."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def identity(self) -> Identity:
        return self._identity

    def renew(self, refused: Identity) -> None:
        return


class RereadCredentials:
    """Those of a configuration that is read again when the server refuses them, and by ``reread``."""

    def __init__(self, config: AccessConfig, read: Callable[[], AccessConfig], *, clock: Clock) -> None:
        self._config = config
        self._read = read
        self._clock = clock
        self._inner = credentials_of(config, clock=clock)
        self._read_s = float("-inf")

    async def identity(self) -> Identity:
        return await self._inner.identity()

    def renew(self, refused: Identity) -> None:
        self._inner.renew(refused)
        if self._clock.monotonic() - self._read_s >= _RENEW_EVERY_S:
            self.reread()

    def reread(self) -> None:
        """Take the credentials that the configuration has now. One that cannot be read changes nothing."""
        self._read_s = self._clock.monotonic()
        try:
            config = self._read()
            if config == self._config:
                return
            self._inner = credentials_of(config, clock=self._clock)
        except ConfigError as error:
            log.warning("the cluster's credentials cannot be read again; keeping the last ones", reason=str(error))
            return
        self._config = config
        log.info("read the cluster's credentials again")


class TokenFile:
    """A bearer token in a file that another process renews."""

    def __init__(self, path: Path, given: Identity, *, clock: Clock) -> None:
        self._path = path
        self._given = given
        self._clock = clock
        self._seen: tuple[int, int, int] | None = None  # inode, size and modification time of the file when it was read
        self._looked_at_s = -_LOOK_EVERY_S
        self._identity = given

    async def identity(self) -> Identity:
        now = self._clock.monotonic()
        if self._seen is None or now - self._looked_at_s >= _LOOK_EVERY_S:
            self._looked_at_s = now
            self._look()
        return self._identity

    def _look(self) -> None:
        try:
            about = self._path.stat()
            seen = about.st_ino, about.st_size, about.st_mtime_ns
            if seen != self._seen:
                token = self._path.read_text().strip()
                if not token:
                    raise ConfigError(f"tokenFile {self._path} is empty")
                self._identity = Identity(f"Bearer {token}", self._given.certificate, self._given.key)
                self._seen = seen
        except OSError as error:
            if self._seen is None:  # a file that vanishes while it is being replaced: the last token still holds
                raise ConfigError(f"tokenFile cannot be read from {self._path}: {error.strerror}") from error

    def renew(self, refused: Identity) -> None:
        if self._identity == refused:
            self._looked_at_s = -_LOOK_EVERY_S
            self._look()


class ExecCredentials:
    """Credentials from a plugin, kept until they expire; one run at a time, shared by all waiting requests."""

    def __init__(self, plugin: ExecPlugin, given: Identity, *, clock: Clock) -> None:
        self._plugin = plugin
        self._given = given
        self._clock = clock
        self._identity: Identity | None = None
        self._expires_at: float | None = None  # wall time; None: when the server refuses it
        self._renewed_s = float("-inf")
        self._running = asyncio.Lock()

    async def identity(self) -> Identity:
        if (kept := self._kept()) is not None:
            return kept
        async with self._running:
            if (kept := self._kept()) is not None:
                return kept
            self._identity, self._expires_at = _parse(self._plugin, await _run(self._plugin), self._given)
            return self._identity

    def _kept(self) -> Identity | None:
        if self._expires_at is not None and self._clock.wall_s() >= self._expires_at - _EARLY_S:
            return None
        return self._identity

    def renew(self, refused: Identity) -> None:
        now = self._clock.monotonic()
        if self._identity == refused and now - self._renewed_s >= _RENEW_EVERY_S:
            self._renewed_s = now
            self._identity = None


async def _run(plugin: ExecPlugin) -> bytes:
    interactive = plugin.interactive_mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not interactive:
        raise ConfigError(f"the exec plugin {plugin.command} needs a terminal, but standard input is not one")
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.cluster_info is not None:
        spec["cluster"] = plugin.cluster_info
    asked = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    env = {**os.environ, **plugin.env, "KUBERNETES_EXEC_INFO": orjson.dumps(asked).decode()}
    command = plugin.command
    if "/" in command:
        command = str(Path(plugin.directory) / command)
    try:
        process = await asyncio.create_subprocess_exec(
            command, *plugin.args, stdin=None if interactive else DEVNULL, stdout=PIPE, env=env
        )
    except OSError as error:
        hint = f". {plugin.install_hint}" if plugin.install_hint else ""
        raise ConfigError(f"the exec plugin {plugin.command} cannot be run: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(_EXEC_BUDGET_S):
            output, _ = await process.communicate()
    except TimeoutError:
        raise Unauthorized(f"the exec plugin {plugin.command} did not finish within {_EXEC_BUDGET_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Unauthorized(f"the exec plugin {plugin.command} failed with exit code {process.returncode}")
    return output


def _parse(plugin: ExecPlugin, output: bytes, given: Identity) -> tuple[Identity, float | None]:
    try:
        answer = orjson.loads(output)
        if answer["kind"] != "ExecCredential" or answer["apiVersion"] != plugin.api_version:
            raise ValueError(f"it is a {answer['kind']} of {answer['apiVersion']}, not of {plugin.api_version}")
        status = answer["status"]
        token = status.get("token") or ""
        certificate, key = status.get("clientCertificateData") or "", status.get("clientKeyData") or ""
        if bool(certificate) != bool(key):
            raise ValueError("a certificate and its key must be set together")
        if not token and not certificate:
            raise ValueError("it has neither a token nor a certificate")
        until = status.get("expirationTimestamp")
        expires_at = parse_epoch(until) if until else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unauthorized(f"the exec plugin {plugin.command} printed no usable credential: {error}") from error
    identity = Identity(f"Bearer {token}" if token else "", certificate or given.certificate, key or given.key)
    return identity, expires_at


def tls_context(config: AccessConfig, identity: Identity) -> ssl.SSLContext:
    """The TLS context for connections to an ``https`` server."""
    try:
        context = ssl.create_default_context(cadata=config.ca_pem or None)
    except ssl.SSLError as error:
        raise ConfigError(f"certificate-authority of {config.url} is not PEM: {error}") from error
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if identity.certificate:
        try:
            _load_pair(context, identity)
        except ssl.SSLError as error:
            raise ConfigError(f"client-certificate for {config.url} does not match its key: {error}") from error
    return context


def _load_pair(context: ssl.SSLContext, identity: Identity) -> None:
    # ssl reads keys from files only: give it one that has no name and is gone when it is closed
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as memory:
        memory.write(identity.certificate.encode() + b"\n" + identity.key.encode())
        memory.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
