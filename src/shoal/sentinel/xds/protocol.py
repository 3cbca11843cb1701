"""The delta discovery protocol towards one Envoy, as a machine without I/O: snapshots and requests in, responses out.

Per type at most one response is in flight; later changes are sent after its acknowledgement, so that a burst becomes
one response. The order:

    clusters ──acked──▶ their endpoints ──acked──▶ listeners, scopes, routes ──acked──▶ drain ──▶ removal of clusters

A route is not sent before every cluster it names can be used, and a cluster is not removed while a route that Envoy
has, or may have, names it. Nothing is sent before the first snapshot, which is made when all inputs are complete, so
no resource is removed only because its input was not read yet.

A response that Envoy refuses is sent again in halves until one refused resource is left. That version is set aside
with Envoy's reason, and the last version that Envoy accepted replaces it (with the clusters that it needs, even if the
snapshot dropped them). It is retried at intervals, alone: the reason may be temporary.

What Envoy has of a name is a set of possibilities: one after an acknowledgement, more while a response is in flight or
after one was refused as a whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from shoal.sentinel.xds.model import (
    CLUSTER,
    ENDPOINTS,
    EXTENSION,
    LISTENER,
    ROUTES,
    SCOPE,
    TYPES,
    DiscoveryRequest,
    DiscoveryResponse,
    Nack,
    ResourceRef,
    Snapshot,
    XdsResource,
)

Held = tuple[XdsResource | None, ...]

_NOTHING: Held = (None,)
_EVERYTHING = "*"
_NAMING = (EXTENSION, LISTENER, SCOPE, ROUTES)  # the types that name clusters
_BEFORE_ROUTES = (EXTENSION, LISTENER)  # routes need their filters: Envoy ignores a filter it does not have yet


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsLimits:
    drain_s: float = 5.0  # from the last route that named a cluster to the removal of the cluster
    response_bytes: int = 1024 * 1024
    retry_s: float = 30.0  # wait before a refused version is retried; doubles
    retry_cap_s: float = 600.0


@dataclass(slots=True)
class _Subscription:
    """State of one type on this stream."""

    wildcard: bool = False
    names: set[str] = field(default_factory=set)  # asked for by name
    held: dict[str, Held] = field(default_factory=dict)  # a missing name: Envoy certainly does not have it
    dirty: dict[str, None] = field(default_factory=dict)  # may need sending; in order of arrival
    asked: set[str] = field(default_factory=set)  # must be answered, even if Envoy should have it
    answered: bool = True  # False: Envoy waits for a first answer, however empty
    flight: DiscoveryResponse | None = None
    alone: deque[tuple[str, ...]] = field(default_factory=deque)  # groups that are sent in responses of their own

    def wants(self, name: str) -> bool:
        return self.wildcard or name in self.names

    def has(self, name: str) -> Held:
        return self.held.get(name, _NOTHING)

    def hold(self, name: str, held: Iterable[XdsResource | None]) -> None:
        made = tuple({_version(one): one for one in held}.values())
        if made and made != _NOTHING:
            self.held[name] = made
        else:
            self.held.pop(name, None)


class XdsMachine:
    """The state of the protocol with one Envoy. ``now`` is monotonic time."""

    def __init__(self, limits: XdsLimits | None = None) -> None:
        self._limits = limits or XdsLimits()
        self._snapshot: Snapshot | None = None
        self._wanted: Snapshot = {}  # the snapshot, with the last accepted version of refused resources
        self._good: dict[ResourceRef, XdsResource] = {}  # as last acknowledged
        self._refused: dict[ResourceRef, Nack] = {}
        self._unused_since: dict[str, float] = {}  # clusters to remove, with the time since when no resource names them
        self._subscriptions: dict[str, _Subscription] | None = None
        self._nonces = count(1)
        self._complete = False

    # public state

    @property
    def connected(self) -> bool:
        return self._subscriptions is not None

    @property
    def complete(self) -> bool:
        """Whether Envoy has had, on this stream, everything that it should have, apart from what it refused."""
        return self._complete

    @property
    def refusals(self) -> tuple[Nack, ...]:
        return tuple(self._refused.values())

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight: Envoy has answered the newest snapshot."""
        if not self._complete:
            return False
        for type_, subscription in (self._subscriptions or {}).items():
            if (
                subscription.flight is not None
                or subscription.alone
                or subscription.asked
                or self._lacks(type_, subscription)
            ):
                return False
        return True

    def due_s(self, now: float) -> float | None:
        """Seconds until ``tick`` has work; None if no timer is set."""
        clusters = (self._subscriptions or {}).get(CLUSTER)
        times = []
        if clusters is not None and clusters.flight is None:
            times += [since + self._limits.drain_s for since in self._unused_since.values()]
        times += [one.retry_at for one in self._refused.values() if not one.trying]
        return max(0.0, min(times) - now) if times else None

    # events

    def publish(self, snapshot: Snapshot, now: float) -> list[DiscoveryResponse]:
        """Set the snapshot that Envoy should have."""
        self._snapshot = snapshot
        for one in self.refusals:
            if not self._is_in_snapshot(one.ref, one.version):
                del self._refused[one.ref]
        self._settle()
        return self._pump(now)

    def connect(self) -> None:
        """A new stream replaces the previous one."""
        self._subscriptions = {}
        self._complete = False
        self._unused_since.clear()
        for ref, one in self._refused.items():
            self._refused[ref] = replace(one, trying=False)
        self._settle()

    def disconnect(self) -> None:
        self._subscriptions = None
        self._complete = False

    def receive(self, request: DiscoveryRequest, now: float) -> list[DiscoveryResponse]:
        assert self._subscriptions is not None, "nothing is connected"
        subscription = self._subscriptions.get(request.type)
        if subscription is None:
            subscription = self._subscriptions[request.type] = self._opened(request)
        flight = subscription.flight
        if flight is not None and request.nonce == flight.nonce:
            subscription.flight = None
            if request.error is None:
                self._acknowledge(subscription, flight)
            else:
                self._refuse(subscription, flight, request.error, now)
        self._subscribe(subscription, request)
        return self._pump(now)

    def tick(self, now: float) -> list[DiscoveryResponse]:
        """Retry refused versions and remove drained clusters that are due."""
        due = [one for one in self._refused.values() if not one.trying and now >= one.retry_at]
        for one in due:
            subscription = (self._subscriptions or {}).get(one.ref.type)
            if subscription is not None:
                self._refused[one.ref] = replace(one, trying=True)
                subscription.alone.append((one.ref.name,))
            else:
                self._refused[one.ref] = replace(one, retry_at=now + self._limits.retry_s)
        if due:
            self._settle()
        return self._pump(now)

    # requests of Envoy

    def _opened(self, request: DiscoveryRequest) -> _Subscription:
        named = [name for name in request.subscribe if name != _EVERYTHING]
        wildcard = not named or _EVERYTHING in request.subscribe
        subscription = _Subscription(wildcard=wildcard, answered=bool(request.versions) or not wildcard)
        for name, version in request.versions.items():
            subscription.held[name] = (self._recognize(ResourceRef(request.type, name), version),)
            subscription.dirty[name] = None
        if wildcard:
            subscription.dirty |= dict.fromkeys(self._of(request.type))
        return subscription

    def _recognize(self, ref: ResourceRef, version: str) -> XdsResource:
        """The resource that Envoy has from an earlier stream; its content may be unknown."""
        for one in (self._of(ref.type).get(ref.name), self._good.get(ref)):
            if one is not None and one.version == version:
                return one
        return XdsResource(ref, version, known=False)

    def _subscribe(self, subscription: _Subscription, request: DiscoveryRequest) -> None:
        for name in request.unsubscribe:
            subscription.names.discard(name)
            subscription.asked.discard(name)
            if not subscription.wildcard:
                subscription.held.pop(name, None)
                self._forget(ResourceRef(request.type, name))
        for name in request.subscribe:
            if name == _EVERYTHING:
                continue
            subscription.names.add(name)
            subscription.dirty[name] = None
            # Envoy may have dropped what it once had; and an earlier cluster may still wait for its endpoints.
            if name not in request.versions or request.type == ENDPOINTS:
                subscription.asked.add(name)

    def _acknowledge(self, subscription: _Subscription, flight: DiscoveryResponse) -> None:
        for one in flight.resources:
            name = one.ref.name
            self._good[one.ref] = one
            refusal = self._refused.get(one.ref)
            if refusal is not None and refusal.version == one.version:
                del self._refused[one.ref]
            if subscription.wants(name):
                subscription.held[name] = (one,)
        for name in flight.removed:
            subscription.held.pop(name, None)
            subscription.dirty[name] = None
            self._forget(ResourceRef(flight.type, name))

    def _refuse(self, subscription: _Subscription, flight: DiscoveryResponse, reason: str, now: float) -> None:
        resources = flight.resources
        if len(resources) > 1:
            for part in reversed(_split([one.ref.name for one in resources], reason)):
                subscription.alone.appendleft(tuple(part))
            return
        for name in flight.removed:
            subscription.held.pop(name, None)
        for one in resources:
            name = one.ref.name
            if name in subscription.held:
                subscription.hold(
                    name, (held for held in subscription.has(name) if held is None or held.version != one.version)
                )
            subscription.dirty[name] = None
            if self._is_in_snapshot(one.ref, one.version):
                self._set_aside(one, reason, now)
        self._settle()

    def _set_aside(self, one: XdsResource, reason: str, now: float) -> None:
        before = self._refused.get(one.ref)
        attempts = before.attempts + 1 if before is not None else 1
        wait_s = min(self._limits.retry_cap_s, self._limits.retry_s * 2 ** min(attempts - 1, 10))
        self._refused[one.ref] = Nack(
            ref=one.ref, version=one.version, reason=reason, attempts=attempts, retry_at=now + wait_s
        )

    # what Envoy should have

    def _is_in_snapshot(self, ref: ResourceRef, version: str) -> bool:
        wanted = (self._snapshot or {}).get(ref.type, {}).get(ref.name)
        return wanted is not None and wanted.version == version

    def _settle(self) -> None:
        """Compute what Envoy should have, and note what differs from before."""
        if self._snapshot is None:
            return
        aside = [one for one in self._refused.values() if not one.trying]
        old, self._wanted = self._wanted, self._without(aside) if aside else self._snapshot
        for name in [name for name in self._unused_since if name in self._of(CLUSTER)]:
            del self._unused_since[name]
        for type_ in TYPES:
            changed = _changed(old.get(type_, {}), self._of(type_))
            subscription = (self._subscriptions or {}).get(type_)
            if subscription is not None:
                subscription.dirty |= dict.fromkeys(changed)
            for name in changed:
                self._forget(ResourceRef(type_, name))

    def _of(self, type_: str) -> Mapping[str, XdsResource]:
        """All resources of a type that Envoy should have."""
        return self._wanted.get(type_, {})

    def _without(self, aside: Iterable[Nack]) -> Snapshot:
        """The snapshot, with the last accepted version of resources set aside."""
        assert self._snapshot is not None
        wanted = {type_: dict(self._snapshot.get(type_, {})) for type_ in TYPES}
        for one in aside:
            good = self._good.get(one.ref)
            if good is not None and good.version != one.version:
                wanted[one.ref.type][one.ref.name] = good
            else:
                wanted[one.ref.type].pop(one.ref.name, None)
        self._keep_needed(wanted)
        return wanted

    def _keep_needed(self, wanted: dict[str, dict[str, XdsResource]]) -> None:
        """The last accepted version of a resource may need clusters that the snapshot no longer has."""
        for type_ in _NAMING:
            for one in wanted[type_].values():
                for name in one.needs:
                    if name not in wanted[CLUSTER] and (kept := self._good.get(ResourceRef(CLUSTER, name))):
                        wanted[CLUSTER][name] = kept
        for type_ in (CLUSTER, LISTENER, SCOPE):
            for one in wanted[type_].values():
                for ref in one.brings:
                    if ref.name not in wanted[ref.type] and (kept := self._good.get(ref)):
                        wanted[ref.type][ref.name] = kept

    def _forget(self, ref: ResourceRef) -> None:
        """Drop accepted versions that can never be sent again."""
        subscription = (self._subscriptions or {}).get(ref.type)
        if ref.name not in self._of(ref.type) and (subscription is None or ref.name not in subscription.held):
            self._good.pop(ref, None)

    # responses

    def _pump(self, now: float) -> list[DiscoveryResponse]:
        if self._subscriptions is None or self._snapshot is None:
            return []
        responses = []
        for type_ in TYPES:
            subscription = self._subscriptions.get(type_)
            if subscription is None or subscription.flight is not None or (type_ == ROUTES and not self._has_filters()):
                continue
            if (response := self._next(type_, subscription, now)) is not None:
                subscription.flight = response
                responses.append(response)
        self._complete = self._complete or self._is_complete()
        return responses

    def _next(self, type_: str, subscription: _Subscription, now: float) -> DiscoveryResponse | None:
        while subscription.alone:
            response = self._updates(type_, subscription, subscription.alone.popleft())
            if response is not None:
                return response
        response = self._updates(type_, subscription, tuple(subscription.dirty))
        response = response or self._removals(type_, subscription, now)
        if response is None and not subscription.answered and not self._of(type_):
            response = DiscoveryResponse(type=type_, nonce=self._nonce())
        if response is not None:
            subscription.answered = True
        return response

    def _updates(self, type_: str, subscription: _Subscription, names: Iterable[str]) -> DiscoveryResponse | None:
        chosen: list[XdsResource] = []
        size = 0
        for name in names:
            want = self._of(type_).get(name) if subscription.wants(name) else None
            if want is None:
                continue
            if name not in subscription.asked and _is(subscription.has(name), want):
                subscription.dirty.pop(name, None)
                continue
            if not all(self._is_usable(cluster) for cluster in want.needs):
                continue
            size += len(want.body)
            if chosen and size > self._limits.response_bytes:
                break
            chosen.append(want)
        if not chosen:
            return None
        for one in chosen:
            name = one.ref.name
            subscription.hold(name, (*subscription.has(name), one))
            subscription.asked.discard(name)
            if type_ == CLUSTER:
                self._resend_endpoints(one)
        return DiscoveryResponse(type=type_, nonce=self._nonce(), resources=tuple(chosen))

    def _resend_endpoints(self, cluster: XdsResource) -> None:
        """A cluster that is new or changed waits for its endpoints, but Envoy requests those of a name only once."""
        for ref in cluster.brings:
            subscription = (self._subscriptions or {}).get(ref.type)
            if subscription is not None and ref.name in subscription.names:
                subscription.asked.add(ref.name)
                subscription.dirty[ref.name] = None

    def _removals(self, type_: str, subscription: _Subscription, now: float) -> DiscoveryResponse | None:
        """Resources to remove: those Envoy should not have, and requested names that do not exist."""
        named: frozenset[str] | None = None
        gone: list[str] = []
        for name in tuple(subscription.dirty):
            if name in self._of(type_) and subscription.wants(name):
                continue
            if name in subscription.asked:
                subscription.asked.discard(name)
                gone.append(name)
            elif name not in subscription.held or not subscription.wildcard:
                subscription.dirty.pop(name, None)  # Envoy drops resources that it requested by name by itself
            elif type_ != CLUSTER:
                gone.append(name)
            else:
                named = self._named_clusters() if named is None else named
                if self._is_drained(name, named, now):
                    gone.append(name)
        for name in gone:
            subscription.hold(name, (*subscription.has(name), None))
            if type_ == CLUSTER:
                self._unused_since.pop(name, None)
        return DiscoveryResponse(type=type_, nonce=self._nonce(), removed=tuple(gone)) if gone else None

    def _is_drained(self, cluster: str, named: frozenset[str] | None, now: float) -> bool:
        if named is None or cluster in named:
            self._unused_since.pop(cluster, None)
            return False
        return now >= self._unused_since.setdefault(cluster, now) + self._limits.drain_s

    def _named_clusters(self) -> frozenset[str] | None:
        """The clusters named by resources that Envoy has or may have; None if unknown."""
        found: set[str] = set()
        for type_ in _NAMING:
            subscription = (self._subscriptions or {}).get(type_)
            for held in subscription.held.values() if subscription is not None else ():
                for one in held:
                    if one is not None:
                        if not one.known:
                            return None
                        found |= one.needs
        return frozenset(found)

    def _nonce(self) -> str:
        return str(next(self._nonces))

    # what Envoy has

    def _has(self, ref: ResourceRef) -> Held:
        subscription = (self._subscriptions or {}).get(ref.type)
        return subscription.has(ref.name) if subscription is not None else _NOTHING

    def _is_usable(self, cluster: str) -> bool:
        """Whether a route may name it. A cluster that will never exist blocks no route."""
        if cluster not in self._of(CLUSTER):
            return True
        held = self._has(ResourceRef(CLUSTER, cluster))
        if None in held:
            return False
        endpoints = self._of(CLUSTER)[cluster].brings
        return all(None not in self._has(ref) for ref in endpoints if ref.name in self._of(ref.type))

    def _has_filters(self) -> bool:
        """Whether Envoy has all that routes rely on, in its newest version."""
        subscriptions = self._subscriptions or {}
        return not any(self._lacks(type_, subscriptions[type_]) for type_ in _BEFORE_ROUTES if type_ in subscriptions)

    def _lacks(self, type_: str, subscription: _Subscription) -> bool:
        """Whether Envoy may lack the newest version of a resource that it requested."""
        wanted = self._of(type_)
        return any(
            name in wanted and subscription.wants(name) and not _is(subscription.has(name), wanted[name])
            for name in subscription.dirty
        )

    def _is_complete(self) -> bool:
        """Whether Envoy has some version of every resource, not necessarily the newest."""
        if LISTENER not in (self._subscriptions or {}):
            return False
        for type_ in (CLUSTER, LISTENER, SCOPE):
            for want in self._of(type_).values():
                if None in self._has(want.ref):
                    return False
                if any(None in self._has(ref) for ref in want.brings if ref.name in self._of(ref.type)):
                    return False
        return True


def _is(held: Held, want: XdsResource) -> bool:
    """Whether Envoy certainly has this version, and no other."""
    return len(held) == 1 and held[0] is not None and held[0].version == want.version


def _version(held: XdsResource | None) -> str | None:
    return held.version if held is not None else None


def _changed(old: Mapping[str, XdsResource], new: Mapping[str, XdsResource]) -> list[str]:
    if old is new:
        return []
    found = [name for name in old if name not in new]
    for name, one in new.items():
        before = old.get(name)
        if before is not one and (before is None or before.version != one.version):
            found.append(name)
    return found


def _split(names: list[str], reason: str) -> list[list[str]]:
    """Split into two parts to isolate the refused resource: those the reason names, else halves."""
    named = [name for name in names if name in reason]
    if 0 < len(named) < len(names):
        return [[name for name in names if name not in reason], named]
    half = len(names) // 2
    return [names[:half], names[half:]]
