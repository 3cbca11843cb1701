"""A controller's state per key: the applied version, the last error, and the time since when it is pending."""

from __future__ import annotations

from collections.abc import Iterable
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
    received_ms: int = 0  # of a version that a request led to, when it came


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
        self.received: dict[
            str, tuple[Version, int]
        ] = {}  # not applied yet: the version that a request led to, and when it came
        self.seen: set[str] = set()  # the cluster has shown something of the key since it was applied
        self.unready: dict[str, int] = {}  # applied and not ready yet: when the change was committed, in ms
        self.unverified: set[str] = set()  # found as it should be when the agent started, and not looked at closely
        self.doubtful: set[str] = set()  # to be asked for, or put into the inbox, as soon as possible

    def came(self, item: pb.Item, now_ms: int) -> None:
        """A new version was received. When, is remembered if a request led to it."""
        if item.correlation:
            self.received[item.key] = (version_of(item), now_ms)

    def succeeded(self, item: pb.Item, now_ms: int) -> bool:
        """True when this is a version that was not applied before."""
        key, version = item.key, version_of(item)
        before = self.applied.get(key)
        self.failures.pop(key, None)
        came = self.received.pop(key, None)
        received_ms = came[1] if came is not None and came[0] == version else 0
        if before is not None and before.version == version:
            received_ms = before.received_ms
        self.applied[key] = Applied(version, now_ms, is_removal(item), received_ms)
        if came is not None and came[0] != version:
            self.received[key] = came  # a newer version is on its way
        self.unverified.discard(key)
        if before is not None and before.version == version:
            return False
        if is_removal(item):
            self.unready.pop(key, None)
        elif item.committed_ms:
            self.unready[key] = item.committed_ms
        return True

    def times(self, reports: Iterable[pb.DeploymentReport | pb.SentinelReport]) -> list[pb.HopTimes]:
        """When this process had the versions that the reports name, if a request led to them."""
        found = [(report.key, self.applied.get(report.key)) for report in reports]
        return [
            pb.HopTimes(key=key, received_ms=applied.received_ms, applied_ms=applied.at_ms)
            for key, applied in found
            if applied is not None and applied.received_ms
        ]

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
        self.received.pop(key, None)
        self.unready.pop(key, None)
        self.seen.discard(key)
        self.unverified.discard(key)
