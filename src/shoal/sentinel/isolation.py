"""Finds the route or policy that Envoy refuses among those that share a resource.

Envoy receives many routes as one resource, so a single bad route would block all others. If Envoy refuses a resource,
all changes since its last accepted version are reverted and applied again in groups: a refused group is halved until
one route or policy is left. It keeps its last accepted version; without one, its requests are refused (or it is left
out if Envoy refuses even that), until it changes.

    publish(apply(inputs)) ──▶ Envoy has answered everything ──▶ settled(refusal or not) ──True──▶ publish again
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shoal.sentinel.model import GatewayPolicy, GatewayRoute, Inputs

Part = GatewayRoute | GatewayPolicy
_KINDS = {"route": "routes", "policy": "policies"}
REFUSED = "Envoy refuses it: "


@dataclass(slots=True)
class _Held:
    """A refused route or policy, and the reason."""

    part: Part
    reason: str
    left_out: bool = False


class Isolation:
    def __init__(self) -> None:
        self._accepted: dict[str, Part] = {}  # by ``route/NAME`` or ``policy/NAME``, as Envoy last accepted it
        self._held: dict[str, _Held] = {}
        self._waiting: deque[tuple[str, ...]] = deque()  # groups to apply again
        self._made = Inputs()  # last result of ``apply``
        self._last: tuple[Inputs, Inputs, object] | None = None  # input, result and reasons of the last ``apply``

    @property
    def busy(self) -> bool:
        """Whether a search is in progress."""
        return bool(self._waiting)

    @property
    def reasons(self) -> Mapping[str, str]:
        """Envoy's reasons by ``route/NAME`` or ``policy/NAME``."""
        return {key: one.reason for key, one in self._held.items()}

    def apply(self, inputs: Inputs) -> Inputs:
        """The inputs without the versions that Envoy refuses."""
        for key, held in tuple(self._held.items()):
            if _get(inputs, key) != held.part:
                del self._held[key]  # another version is tried again
        aside = self._aside()
        self._made = self._without(inputs, aside) if aside else inputs
        return self._made

    def _without(self, inputs: Inputs, aside: set[str]) -> Inputs:
        why = (aside, {key: (held.reason, held.left_out) for key, held in self._held.items()})
        if self._last is not None and self._last[2] == why and _same(self._last[0], inputs):
            before = self._last[1]  # the same objects, so that nothing is translated anew
            return replace(inputs, routes=before.routes, policies=before.policies)
        members = {kind: dict(getattr(inputs, kind)) for kind in _KINDS.values()}
        for key in aside:
            kind, _, name = key.partition("/")
            part = _get(inputs, key)
            if part is not None:
                instead = self._instead(key, part)
                if instead is None:
                    del members[_KINDS[kind]][name]
                else:
                    members[_KINDS[kind]][name] = instead
        made = replace(inputs, routes=members["routes"], policies=members["policies"])
        self._last = (inputs, made, why)
        return made

    def _instead(self, key: str, part: Part) -> Part | None:
        """The replacement of a refused object; None: leave it out. A policy is never left out, only closed."""
        accepted = self._accepted.get(key)
        if accepted is not None:
            return accepted
        held = self._held.get(key)
        if isinstance(part, GatewayRoute) and (held is None or held.left_out):
            return None
        return replace(part, spec=None, fault=REFUSED + held.reason if held is not None else "Envoy is asked about it")

    def settled(self, refusal: str | None) -> bool:
        """Envoy has answered the whole snapshot; return True if another one must be published."""
        published = _parts(self._made)
        if refusal is None:
            self._agree(published)
            return self._take_next()
        aside = self._aside()
        suspects = tuple(key for key, part in published.items() if self._accepted.get(key) != part)
        suspects = tuple(key for key in suspects if key not in aside)
        if suspects:
            self._narrow(suspects, published, refusal)
            return True  # first without them: the next group follows when Envoy accepts the rest
        closed = [held for key, held in self._held.items() if not held.left_out and key not in self._accepted]
        for held in closed:
            held.left_out = True
        if not closed:
            self._waiting.clear()  # the reason is not a route or policy
        return bool(closed)

    def _agree(self, published: Mapping[str, Part]) -> None:
        aside = self._aside()
        self._accepted = {key: part for key, part in self._accepted.items() if key in aside}
        self._accepted |= {key: part for key, part in published.items() if key not in aside}

    def _aside(self) -> set[str]:
        """The objects that are not published in their current version."""
        return {key for group in self._waiting for key in group} | set(self._held)

    def _narrow(self, suspects: tuple[str, ...], published: Mapping[str, Part], reason: str) -> None:
        if len(suspects) == 1:
            self._held[suspects[0]] = _Held(published[suspects[0]], reason)
            return
        half = len(suspects) // 2
        self._waiting.appendleft(suspects[half:])
        self._waiting.appendleft(suspects[:half])

    def _take_next(self) -> bool:
        """Apply the next group; False when none is left."""
        if not self._waiting:
            return False
        self._waiting.popleft()
        return True


def _same(one: Inputs, other: Inputs) -> bool:
    return one.routes is other.routes and one.policies is other.policies


def _parts(inputs: Inputs) -> dict[str, Part]:
    found: dict[str, Part] = {f"route/{name}": one for name, one in inputs.routes.items()}
    return found | {f"policy/{name}": one for name, one in inputs.policies.items()}


def _get(inputs: Inputs, key: str) -> Part | None:
    kind, _, name = key.partition("/")
    members: Mapping[str, Part] = getattr(inputs, _KINDS[kind])
    return members.get(name)
