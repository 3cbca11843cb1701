"""Inputs and results of the fleet's use cases: the caller, object references, and changes per place.

Nothing here reads or writes anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

API_VERSION = "shoal.dev/v1"
GROUP = "shoal.dev"


@dataclass(frozen=True, slots=True)
class Actor:
    """The caller. ``role`` is viewer, editor or admin, in one workspace."""

    workspace_id: str
    actor: str
    role: str
    trace: str = ""  # W3C traceparent of the request
    correlation: str = ""
    accepted_at: int = 0  # when the request came, in milliseconds since 1970


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """Names one object. ``project`` and ``environment`` are names too; empty where the kind is not in one."""

    kind: str
    name: str
    project: str = ""
    environment: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.project, self.environment, self.name) if part)


@dataclass(frozen=True, slots=True)
class ListScope:
    """Limits a list: nothing, a project, or one of its environments."""

    project: str = ""
    environment: str = ""


@dataclass(frozen=True, slots=True)
class Diff:
    """One field that changed. A value of a secret is never in it."""

    path: str
    before: Any
    after: Any

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change does in one place. ``action`` is apply, delete, release or wait (nowhere to put it yet)."""

    region: str
    cluster: str
    shard: str
    key: str
    action: str
    kind: str = ""
    name: str = ""  # in the cluster

    def as_json(self) -> dict[str, str]:
        return {
            "region": self.region,
            "cluster": self.cluster,
            "shard": self.shard,
            "key": self.key,
            "action": self.action,
            "kind": self.kind,
            "name": self.name,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an apply did, or would do when it was dry. ``object`` is as ``get`` would show it."""

    object: dict[str, Any]
    created: bool
    changed: list[Diff]
    effects: list[Effect]
    dry_run: bool = False
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """What a delete removed: the object itself, and with it everything in ``also`` (kind and name)."""

    object: dict[str, Any]
    also: list[ObjectRef]
    effects: list[Effect]
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of a list; ``next`` is what to pass as ``after``, empty at the end."""

    items: list[dict[str, Any]]
    next: str = ""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Values that only a holder of the master key can read."""

    ciphertext: bytes
    data_key: bytes  # wrapped by the master key
    master_key: str  # which one


@dataclass(frozen=True, slots=True)
class GatewayDefaults:
    """Default settings of gateways."""

    image: str = ""  # that of the agent
    replicas: int = 1
    cpu_millicores: int = 250
    memory_mib: int = 256


class Sealer(Protocol):
    """Envelope encryption. The control plane seals plain values and never returns them."""

    async def seal(self, values: dict[str, str]) -> Sealed:
        """Encrypt the values with a new data key."""

    async def rewrap(self, data_key: bytes, master_key: str, public_key: bytes) -> bytes:
        """The data key wrapped for the agent that holds the private half of ``public_key``."""


class KeySealer(Sealer, Protocol):
    """Also keeps keys of the control plane itself."""

    async def wrap(self, key: bytes) -> tuple[bytes, str]:
        """The key wrapped by a master key, and which one."""

    async def unwrap(self, data_key: bytes, master_key: str) -> bytes:
        """The key. Raises ``CannotOpen`` if no master key opens it."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a region's gateway counted of a deployment between two reports."""

    region: str
    requests: int
    failed: int  # answered with 5xx

    @property
    def are_bad(self) -> bool:
        return 2 * self.failed >= self.requests
