"""The last complete state of a gateway, on disk: with it a gateway starts while the API server is unreachable.

One file, readable by its owner only, replaced atomically, written after Envoy has accepted a snapshot and at most every
few seconds. It has all that Envoy serves: routes, policies, endpoints, peers, digests of API keys, and the certificates
and private keys that routes or the entry for peers use, since Envoy cannot serve without them. It has neither the
password of Redis nor the gateway's own credentials. krane mounts the folder in memory, so that the file does not
outlive the pod.

A file of another gateway or of another version is not used: then the gateway waits, as it would without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from shoal.base.clock import Clock
from shoal.base.files import make_private_dirs, write_private
from shoal.base.logs import get_logger
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.model import (
    GatewayPolicy,
    GatewayRoute,
    Inputs,
    InstanceEndpoint,
    KeySet,
    PeerGateway,
    ServiceEndpoints,
    ServiceKey,
    Settings,
    TlsSecret,
)

log = get_logger("sentinel.snapshot")

FILE = "snapshot.json"
VERSION = 1
EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    version: int
    gateway: str
    environment: str
    at: float  # seconds since 1970
    zone: str = ""
    routes: list[GatewayRoute] = field(default_factory=list)
    policies: list[GatewayPolicy] = field(default_factory=list)
    endpoints: list[tuple[str, str, list[InstanceEndpoint]]] = field(
        default_factory=list
    )  # namespace and name of the Service
    tls: list[TlsSecret] = field(default_factory=list)
    keys: list[KeySet] = field(default_factory=list)
    peers: list[PeerGateway] = field(default_factory=list)
    issuers: dict[str, str] = field(default_factory=dict)

    def inputs(self, settings: Settings) -> Inputs:
        return Inputs(
            settings=settings,
            routes={one.name: one for one in self.routes},
            policies={one.name: one for one in self.policies},
            endpoints={
                ServiceKey(namespace, name): ServiceEndpoints(endpoints=tuple(found))
                for namespace, name, found in self.endpoints
            },
            tls={one.name: one for one in self.tls},
            keys={one.environment: one for one in self.keys},
            peers=tuple(self.peers),
            issuers=self.issuers,
        )


def saved(inputs: Inputs, config: SentinelConfig, now: float) -> SavedState:
    """The state to save for these inputs."""
    used = {route.spec.tls.secret for route in inputs.routes.values() if route.spec and route.spec.tls}
    used.add(inputs.settings.entry_secret)
    return SavedState(
        version=VERSION,
        gateway=config.name,
        environment=config.environment,
        at=now,
        zone=inputs.settings.zone,
        routes=list(inputs.routes.values()),
        policies=list(inputs.policies.values()),
        endpoints=[(key.namespace, key.name, list(found.endpoints)) for key, found in inputs.endpoints.items()],
        tls=[one for one in inputs.tls.values() if one.name in used],
        keys=list(inputs.keys.values()),
        peers=list(inputs.peers),
        issuers=dict(inputs.issuers),
    )


def read(config: SentinelConfig) -> SavedState | None:
    """None when there is none that this gateway could use."""
    if config.state is None:
        return None
    path = config.state / FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=SavedState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("the saved state cannot be read", path=str(path), reason=str(error))
        return None
    same = (found.version, found.gateway, found.environment) == (VERSION, config.name, config.environment)
    return found if same else None


class SnapshotWriter:
    """Writes the newest state at intervals. ``run`` it as a task."""

    def __init__(self, config: SentinelConfig, *, clock: Clock, every_s: float = EVERY_S) -> None:
        self._config = config
        self._clock = clock
        self._every_s = every_s
        self._inputs: Inputs | None = None  # not written yet
        self._given = asyncio.Event()

    def keep(self, inputs: Inputs) -> None:
        if self._config.state is not None:
            self._inputs = inputs
            self._given.set()

    async def run(self) -> None:
        while True:
            await self._given.wait()
            await self.write()
            await self._clock.sleep(self._every_s)

    async def write(self) -> None:
        """Write the newest state if it is not written yet."""
        inputs, self._inputs = self._inputs, None
        self._given.clear()
        if inputs is not None:
            await asyncio.to_thread(self._write, inputs)

    def _write(self, inputs: Inputs) -> None:
        assert self._config.state is not None
        try:
            content = msgspec.json.encode(saved(inputs, self._config, self._clock.wall_s()))
            make_private_dirs(self._config.state)
            write_private(self._config.state / FILE, content)
        except OSError as error:
            log.warning("saving the state failed", path=str(self._config.state), reason=str(error))


class RestoredState:
    """The saved state, used until the cluster can be read."""

    def __init__(self, found: SavedState | None, settings: Settings, *, clock: Clock) -> None:
        self._found = found
        self._settings = settings
        self._clock = clock
        self.inputs: Inputs | None = None  # in use

    async def run(self, synced: Callable[[], bool], wait_s: float, changed: Callable[[], None]) -> None:
        """Use the saved state if the cluster was not read within ``wait_s``."""
        await self._clock.sleep(wait_s)
        if self._found is not None and not synced():
            self.inputs = self._found.inputs(self._settings)
            log.warning("the cluster cannot be read; using the saved state", seconds_old=self.age_s)
            changed()

    @property
    def age_s(self) -> int:
        return round(self._clock.wall_s() - self._found.at) if self._found is not None else 0

    def end(self) -> None:
        """The cluster has been read."""
        self.inputs = self._found = None
