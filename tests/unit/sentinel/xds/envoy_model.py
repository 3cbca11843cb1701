"""A model of Envoy's side of the delta protocol: which resources it has and requests."""

from __future__ import annotations

from collections import deque

from shoal.sentinel.xds.model import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    ROUTES,
    DiscoveryRequest,
    DiscoveryResponse,
    ResourceRef,
    XdsResource,
)
from shoal.sentinel.xds.protocol import XdsLimits, XdsMachine

BAD = "bad"
WILDCARDS = (CLUSTER, LISTENER)
FOLLOWS = {CLUSTER: ENDPOINTS, LISTENER: ROUTES}


def a_cluster(name: str, version: str = "1") -> XdsResource:
    return XdsResource(ResourceRef(CLUSTER, name), version, brings=(ResourceRef(ENDPOINTS, name),))


def endpoints(name: str, version: str = "1") -> XdsResource:
    return XdsResource(ResourceRef(ENDPOINTS, name), version)


def a_listener(name: str, routes: str, version: str = "1") -> XdsResource:
    return XdsResource(ResourceRef(LISTENER, name), version, brings=(ResourceRef(ROUTES, routes),))


def routes_to(name: str, *clusters: str, version: str = "1") -> XdsResource:
    return XdsResource(ResourceRef(ROUTES, name), f"{version}:{','.join(clusters)}", needs=frozenset(clusters))


def snapshot_of(*resources: XdsResource) -> dict[str, dict[str, XdsResource]]:
    made: dict[str, dict[str, XdsResource]] = {}
    for one in resources:
        made.setdefault(one.ref.type, {})[one.ref.name] = one
    return made


class EnvoyModel:
    """One Envoy and the wires to and from a machine; nothing moves until it is told to."""

    def __init__(self, machine: XdsMachine | None = None) -> None:
        self.machine = machine or XdsMachine(XdsLimits(drain_s=5.0))
        self.now = 0.0
        self.have: dict[str, dict[str, XdsResource]] = {}
        self.said: list[DiscoveryResponse] = []  # everything that ever came
        self.cold: set[str] = set()  # clusters that wait for their endpoints
        self._inbox: deque[DiscoveryResponse] = deque()
        self._outbox: deque[DiscoveryRequest] = deque()
        self._asked: dict[str, set[str]] = {}
        self.connect()

    # what happens to it

    def connect(self) -> None:
        """A new stream, with what it still has."""
        self.machine.connect()
        self._inbox.clear()
        self._outbox.clear()
        for type_ in WILDCARDS:
            self._outbox.append(DiscoveryRequest(type=type_, versions=self._versions(type_)))
        for type_ in FOLLOWS.values():
            if names := self._asked.get(type_):
                self._outbox.append(
                    DiscoveryRequest(type=type_, subscribe=tuple(sorted(names)), versions=self._versions(type_))
                )

    def crash(self) -> None:
        self.have, self._asked, self.cold = {}, {}, set()
        self.connect()

    def publish(self, snapshot: dict[str, dict[str, XdsResource]]) -> None:
        self._take(self.machine.publish(snapshot, self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self._take(self.machine.tick(self.now))

    def listen(self) -> bool:
        """Take one response in; False when there is none."""
        if not self._inbox:
            return False
        self._apply(self._inbox.popleft())
        return True

    def speak(self) -> bool:
        """Let one request reach the machine; False when there is none."""
        if not self._outbox:
            return False
        self._take(self.machine.receive(self._outbox.popleft(), self.now))
        return True

    def settle(self) -> None:
        """Deliver all messages, and advance time until no timer is left."""
        for _ in range(1000):
            while self.listen() or self.speak():
                pass
            waits = [one for one in [self.machine.due_s(self.now)] if one is not None]
            if not waits or (self.machine.refusals and waits[0] > 20):
                return
            self.pass_time(waits[0])
        raise AssertionError("it never comes to rest")

    def versions(self) -> dict[ResourceRef, str]:
        return {one.ref: one.version for of_type in self.have.values() for one in of_type.values()}

    # what it does

    def _versions(self, type_: str) -> dict[str, str]:
        return {name: one.version for name, one in self.have.get(type_, {}).items()}

    def _take(self, responses: list[DiscoveryResponse]) -> None:
        self._inbox.extend(responses)
        self.said += responses

    def _apply(self, response: DiscoveryResponse) -> None:
        type_ = response.type
        bad = [one for one in response.resources if BAD in one.version]
        error = f"{len(bad)} are bad" if bad else None
        have = self.have.setdefault(type_, {})
        good = [one for one in response.resources if one not in bad] if type_ in WILDCARDS or not bad else []
        for one in good:
            self._check_clusters(one)
            have[one.ref.name] = one
            if type_ == CLUSTER:
                self.cold.add(one.ref.name)
        if type_ == ENDPOINTS:
            heard = {one.ref.name for one in good} | set(response.removed)
            self.cold -= {name for name, one in self.have[CLUSTER].items() if heard & {ref.name for ref in one.brings}}
        for name in response.removed:
            self._check_unused(type_, name)
            have.pop(name, None)
            if type_ == CLUSTER:
                self.cold.discard(name)
        subscribe, unsubscribe = self._follow(type_)
        self._outbox.append(DiscoveryRequest(type=type_, nonce=response.nonce, error=error))
        if subscribe or unsubscribe:
            self._outbox.append(
                DiscoveryRequest(type=FOLLOWS[type_], subscribe=tuple(subscribe), unsubscribe=tuple(unsubscribe))
            )

    def _follow(self, type_: str) -> tuple[list[str], list[str]]:
        """What it asks for because of what it took in. As Envoy does, not again for what it has asked for."""
        follows = FOLLOWS.get(type_)
        if follows is None:
            return [], []
        asked = self._asked.setdefault(follows, set())
        needed = {ref.name for one in self.have[type_].values() for ref in one.brings}
        subscribe = sorted(needed - asked)
        unsubscribe = sorted(asked - needed)
        for name in unsubscribe:
            self.have.get(follows, {}).pop(name, None)
        self._asked[follows] = needed
        return subscribe, unsubscribe

    def _check_clusters(self, one: XdsResource) -> None:
        if one.ref.type == ROUTES:
            for name in one.needs:
                if name in self.have.get(CLUSTER, {}):
                    assert name in self.have.get(ENDPOINTS, {}), f"{one.ref.name} names {name}, which has no endpoints"
                else:
                    refused = {refusal.ref for refusal in self.machine.refusals}
                    assert ResourceRef(CLUSTER, name) in refused, f"{one.ref.name} names {name}, which is not there"

    def _check_unused(self, type_: str, name: str) -> None:
        if type_ == CLUSTER:
            users = [one.ref.name for one in self.have.get(ROUTES, {}).values() if name in one.needs]
            assert not users, f"{name} is removed while {users} name it"
