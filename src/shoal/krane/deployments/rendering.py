"""By which rules a deployment is rendered; pure. They are fixed with the revision, so that an agent of another release
restarts nothing.

    1   capability NET_RAW is dropped, no privilege escalation, the runtime's seccomp profile; all that was before rules
        had numbers
    2   all capabilities are dropped but those that the app keeps; the app says what else it may; it may not run as root
        where its namespace forbids that

The control plane fixes the number with a revision. What a live Deployment was rendered by is in its annotation
``shoal.dev/render`` and goes before that: an earlier agent may have rendered it by older rules than it was told.
"""

from __future__ import annotations

from dataclasses import dataclass

from shoal.krane.labels import RENDER
from shoal.kube.objects import Obj

NEWEST = 2
_NON_ROOT = "nonroot"
_ENFORCED = "pod-security.kubernetes.io/enforce"
_RESTRICTED = "restricted"


@dataclass(frozen=True, slots=True)
class Rendering:
    version: int = 1
    non_root: bool = False  # the namespace forbids to run as root

    @property
    def text(self) -> str:
        """The annotation; empty for the rules of before there was one."""
        if self.version == 1:
            return ""
        return f"{self.version},{_NON_ROOT}" if self.non_root else str(self.version)


FIRST = Rendering()


def rendering_of(live: Obj) -> Rendering:
    """By which rules a live Deployment was rendered."""
    text = str((live["metadata"].get("annotations") or {}).get(RENDER) or "1")
    number, *rest = text.split(",")
    return Rendering(_known(int(number)) if number.isascii() and number.isdigit() else 1, _NON_ROOT in rest)


def rendering_for(version: int, namespace: Obj | None) -> Rendering:
    """Of a deployment that is not there yet; ``version`` is the one of its revision."""
    chosen = _known(version)
    return Rendering(chosen, chosen > 1 and namespace is not None and forbids_root(namespace))


def forbids_root(namespace: Obj) -> bool:
    return (namespace["metadata"].get("labels") or {}).get(_ENFORCED) == _RESTRICTED


def _known(version: int) -> int:
    """Rules of a later release are not known here: the newest ones are the nearest."""
    return min(max(version, 1), NEWEST)
