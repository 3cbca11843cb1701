"""Reads the key URLs of OpenID Connect issuers; the gateway makes no other external requests.

Only the address of the keys is needed; Envoy fetches the keys themselves. Routes whose issuer has not answered yet are
closed. A known URL is kept until the issuer publishes another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import orjson

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import AccessConfig, TransportError
from shoal.client.http import HttpLimits, HttpTransport
from shoal.errors import ConfigError
from shoal.sentinel.model import GatewayPolicy

log = get_logger("sentinel.issuers")

_PATH = "/.well-known/openid-configuration"
_REFRESH_S = 3600.0
_BACKOFF = Backoff(base_s=1.0, cap_s=60.0, floor_s=0.5)
_LIMITS = HttpLimits(connections=1, connect_s=5.0, request_s=10.0)


class Unusable(Exception):
    """The issuer's answer has no valid key URL."""


@dataclass(slots=True)
class _Issuer:
    due: float  # when to ask
    failures: int = 0
    keys_uri: str = ""


class IssuerFinder:
    """``run`` it as a task; it calls ``found`` with all key URLs after each change."""

    def __init__(
        self, found: Callable[[Mapping[str, str]], None], *, clock: Clock, random: Callable[[], float]
    ) -> None:
        self._found = found
        self._clock = clock
        self._random = random
        self._issuers: dict[str, _Issuer] = {}
        self._wake = asyncio.Event()

    def look_for(self, policies: Iterable[GatewayPolicy]) -> None:
        """These are the policies; issuers that none of them names are forgotten."""
        named = {one.spec.jwt.oidc_issuer for one in policies if one.spec is not None and one.spec.jwt is not None} - {
            ""
        }
        if named != self._issuers.keys():
            now = self._clock.monotonic()
            self._issuers = {issuer: self._issuers.get(issuer) or _Issuer(now) for issuer in sorted(named)}
            self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            for issuer, state in tuple(self._issuers.items()):
                if state.due <= now:
                    await self._ask(issuer, state)
            waits = [state.due - self._clock.monotonic() for state in self._issuers.values()]
            timer = self._clock.call_later(max(0.0, min(waits)), self._wake.set) if waits else None
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    async def _ask(self, issuer: str, state: _Issuer) -> None:
        try:
            keys_uri = await self._fetch(issuer)
        except (TransportError, ConfigError, Unusable) as error:
            state.failures += 1
            state.due = self._clock.monotonic() + _BACKOFF.delay_s(state.failures, self._random)
            log.warning("reading an issuer's configuration failed", issuer=issuer, reason=str(error))
            return
        state.failures, state.due = 0, self._clock.monotonic() + _REFRESH_S
        if keys_uri != state.keys_uri:
            state.keys_uri = keys_uri
            self._found({name: one.keys_uri for name, one in self._issuers.items() if one.keys_uri})

    async def _fetch(self, issuer: str) -> str:
        transport = HttpTransport(AccessConfig(url=issuer), clock=self._clock, limits=_LIMITS)
        try:
            reply = await transport.request("GET", _PATH, headers={"accept": "application/json"})
        finally:
            await transport.close()
        if reply.status != 200:
            raise Unusable(f"status {reply.status}, expected 200")
        return keys_uri_of(issuer, reply.body)


def keys_uri_of(issuer: str, body: bytes) -> str:
    """The URL of the issuer's keys; raise Unusable if ``body`` lacks it or names another issuer."""
    try:
        found = orjson.loads(body)
        said, keys_uri = found["issuer"], found["jwks_uri"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unusable("the answer lacks issuer or jwks_uri") from error
    if not isinstance(said, str) or said.rstrip("/") != issuer.rstrip("/"):
        raise Unusable(f"the answer names issuer {said!r}, expected {issuer!r}")
    if not isinstance(keys_uri, str) or not keys_uri.startswith(("https://", "http://")):
        raise Unusable(f"jwks_uri is {keys_uri!r}: expected an http or https URL")
    return keys_uri
