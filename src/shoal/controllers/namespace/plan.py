"""The conditions of a terminating namespace, and the delay until the next pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shoal.kube.objects import Obj

FINALIZER = "kubernetes"
_LATEST_S, _SOONEST_S = 15.0, 0.5

_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions", "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted", "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """The result of deleting all objects of one resource."""

    resource: str  # plural.group, with the dot even without a group
    left: int = 0
    finalizers: Counter[str] = field(default_factory=Counter)  # finalizer -> number of objects with it
    error: str = ""


def unexpected(left: Sequence[Obj], *, graceful: bool) -> bool:
    """Whether objects are left without a finalizer or grace period."""
    return bool(left) and not graceful and not any(each["metadata"].get("finalizers") for each in left)


def finalizers_of(left: Iterable[Obj]) -> Counter[str]:
    return Counter(name for each in left for name in each["metadata"].get("finalizers") or ())


def conditions(status: Obj, results: Sequence[Emptied], stale: Sequence[str], now: str) -> list[Obj]:
    """The conditions of the namespace after a pass; foreign ones stay, unchanged ones keep their time."""
    wrong = _wrong(results, stale)
    known = {each["type"]: each for each in status.get("conditions") or ()}
    for name, (reason, message) in _FINE.items():
        found = {"type": name, "status": "False", "reason": reason, "message": message}
        if name in wrong:
            reason, message = wrong[name]
            found = {"type": name, "status": "True", "reason": reason, "message": message}
        before = known.get(name, {})
        same = before.get("status") == found["status"]
        found["lastTransitionTime"] = before.get("lastTransitionTime", now) if same else now
        known[name] = found
    return list(known.values())


def _wrong(results: Sequence[Emptied], stale: Sequence[str]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    if stale:
        message = f"Discovery failed for some groups, {len(stale)} failing: {', '.join(sorted(stale))}"
        found["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", message)
    errors = sorted(each.error for each in results if each.error)
    if errors:
        message = f"Failed to delete all resource types, {len(errors)} remaining: {', '.join(errors)}"
        found["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", message)
    left = sorted(f"{each.resource} has {each.left} resource instances" for each in results if each.left)
    if left:
        found["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {', '.join(left)}")
    total: Counter[str] = sum((each.finalizers for each in results), Counter())
    if total:
        held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(total.items()))
        message = f"Some content in the namespace has finalizers remaining: {held}"
        found["NamespaceFinalizersRemaining"] = ("SomeFinalizersRemain", message)
    return found


def is_empty(results: Sequence[Emptied], stale: Sequence[str]) -> bool:
    return not stale and not any(each.left or each.error for each in results)


def recheck_s(deleting_for_s: float) -> float:
    """The delay before the next pass: short at first, then increasing."""
    return min(_LATEST_S, max(_SOONEST_S, deleting_for_s / 4))
