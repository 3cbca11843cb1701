"""A controller's state per key: the applied version, the last error, and the time since when it is pending."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.krane.protocol import is_removal, version_of
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb


@dataclass(frozen=True, slots=True)
class Applied:
    """The last thing done successfully for a key."""

    version: Version
    at_ms: int  # 0: before this process
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the newest version of a key is not applied."""

    version: Version
    reason: str
    message: str
    attempts: int
    since_ms: int


class KeyState:
    def __init__(self) -> None:
        self.applied: dict[str, Applied] = {}
        self.failures: dict[str, Failure] = {}
        self.seen: set[str] = set()  # the cluster has shown something of the key since it was applied
        self.unready: dict[str, int] = {}  # applied and not ready yet: when the change was committed, in ms
        self.unverified: set[str] = set()  # found as it should be when the agent started, and not looked at closely
        self.doubtful: set[str] = set()  # to be asked for, or put into the inbox, as soon as possible

    def succeeded(self, item: pb.Item, now_ms: int) -> bool:
        """True when this is a version that was not applied before."""
        key, version = item.key, version_of(item)
        before = self.applied.get(key)
        self.failures.pop(key, None)
        self.applied[key] = Applied(version, now_ms, is_removal(item))
        self.unverified.discard(key)
        if before is not None and before.version == version:
            return False
        if is_removal(item):
            self.unready.pop(key, None)
        elif item.committed_ms:
            self.unready[key] = item.committed_ms
        return True

    def failed(self, key: str, failure: Failure) -> None:
        """The time of the first failure in a row is kept."""
        known = self.failures.get(key)
        since_ms = known.since_ms if known is not None else failure.since_ms
        self.failures[key] = Failure(failure.version, failure.reason, failure.message, failure.attempts, since_ms)

    def is_running(self, key: str) -> bool:
        """Whether the key was applied and not removed since."""
        applied = self.applied.get(key)
        return applied is not None and not applied.removed

    def forget(self, key: str) -> None:
        self.applied.pop(key, None)
        self.failures.pop(key, None)
        self.unready.pop(key, None)
        self.seen.discard(key)
        self.unverified.discard(key)
