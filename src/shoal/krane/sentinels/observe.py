"""Observes each sentinel, route, policy and set of keys in the cluster; implements ``Observer``.

For a sentinel these are its Deployment, its Service and the counters of its pods; for a route or policy, the verdicts
of the sentinels; for all of them, drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.base.tasks import run_all
from shoal.client import Client, Scope, TransportError, builtin
from shoal.crds.sentinel import under_test
from shoal.errors import ApiError
from shoal.krane import labels
from shoal.krane.labels import NAMESPACE_SENTINEL
from shoal.krane.model import Report
from shoal.krane.objects.memory import Memory
from shoal.krane.objects.watching import Watched, age_of
from shoal.krane.owner import Owner
from shoal.krane.sentinels.apply import PARTS, ROOTS, SECRETS
from shoal.krane.sentinels.install import Installation
from shoal.krane.sentinels.leftovers import Leftovers
from shoal.krane.sentinels.reports import (
    STATS_SCOPE,
    UNKNOWN,
    candidate_of,
    candidate_report,
    entries_of,
    gateway_fault,
    gateway_pod,
    has_judged,
    node_place,
    owned_stats,
    sentinel_report,
    serves,
    stats_key,
    verdicts,
    waiting,
)
from shoal.krane.sentinels.sampling import Samplings
from shoal.krane.sentinels.serving import GatewayPodFacts, ServingPods, demands_label, is_out
from shoal.krane.sentinels.silence import Silence
from shoal.kube.objects import Obj
from shoal.reconcile import Change
from shoal.sync.keys import split_key
from shoal.wire.fleet.v1 import cluster_pb as pb

log = get_logger("krane.sentinels")

_BACKOFF = Backoff(base_s=0.5, cap_s=30.0, floor_s=0.1)
_PODS, _NODES, _CONFIG = builtin("pods"), builtin("nodes"), builtin("configmaps")
_STATS = "stats"


class SentinelObserver:
    def __init__(
        self,
        client: Client,
        owner: Owner,
        memory: Memory,
        installation: Installation,
        *,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        self._client = client
        self._make = partial(Watched, client, clock=clock, random=random)
        self._owner = owner
        self._memory = memory
        self._installation = installation
        self._watched = self._make()
        self._silence: Silence | None = None
        self._serving: ServingPods | None = None
        self._samplings = Samplings()
        self._clock = clock
        self._random = random

    async def run(self, changed: Callable[[str], None]) -> None:
        self._watched = watched = self._make()
        await self._wait_for_kinds()
        watched.parts((part for part in PARTS if part is not SECRETS), self._scope("sentinel"))
        for kind, root in ROOTS.items():
            if kind != "sentinel":
                watched.parts((root,), self._scope("" if kind == "keys" else kind))  # sentinels have Secrets too
        watched.add(_PODS, Scope(namespace=NAMESPACE_SENTINEL), gateway_pod, key_of=lambda _: None)
        watched.add(_NODES, Scope(), node_place)
        stats = Scope(namespace=NAMESPACE_SENTINEL, label_selector=STATS_SCOPE)
        counters = watched.add(_CONFIG, stats, name=_STATS, key_of=partial(stats_key, self._owner))
        self._silence = silence = Silence(
            clock=self._clock, watching=lambda: counters.reflector.watching, changed=partial(self._told, changed)
        )
        counters.cache.add_handler(silence.saw)
        watched.caches["Node"].add_handler(lambda _: self._nodes_changed(changed))
        watched.caches["Pod"].add_handler(lambda change: self._pod_changed(change, changed))
        self._memory.caches = watched.caches
        self._serving = serving = ServingPods(
            self._client,
            clock=self._clock,
            facts=self._pod_facts,
            pods=lambda: watched.caches["Pod"],
            changed=partial(self._moved, changed),
        )
        leftovers = Leftovers(self._client, watched.caches, stats=_STATS, samplings=self._samplings, clock=self._clock)
        await run_all(
            {
                "watch": watched.run(changed),
                "leftovers": leftovers.run(),
                "silence": silence.run(),
                "serving": serving.run(),
                "pods": self._until_pods(changed),
            }
        )

    async def _until_pods(self, changed: Callable[[str], None]) -> None:
        """Until the pods are known, nothing can be said about who has taken a route."""
        await self._watched.caches["Pod"].synced.wait()
        for route in self._watched.caches[ROOTS["route"].kind]:
            if (key := labels.key_of(route)) is not None:
                changed(key)

    def _told(self, changed: Callable[[str], None], pod: str) -> None:
        """A pod went silent, or is heard again."""
        for counters in self._watched.caches[_STATS]:
            key = stats_key(self._owner, counters)
            if key is not None and pod in (counters.get("data") or {}):
                changed(key)

    def _moved(self, changed: Callable[[str], None], name: str) -> None:
        """A pod was taken out of its Service or put back, or routes no longer wait for it."""
        self._told(changed, name)
        pod = next((each for each in self._watched.caches["Pod"] if each["metadata"]["name"] == name), None)
        if pod is not None:
            self._routes_changed(pod, changed)

    def _pod_facts(self) -> list[GatewayPodFacts]:
        """Of the pods of our sentinels whose Service can do without them."""
        caches, silence = self._watched.caches, self._silence
        pods, routes = caches["Pod"], caches[ROOTS["route"].kind]
        if silence is None or not all(cache.synced.is_set() for cache in (pods, routes, caches["Service"])):
            return []
        led = {each["metadata"]["labels"].get(labels.SENTINEL) for each in caches["Service"] if demands_label(each)}
        found: list[GatewayPodFacts] = []
        for pod in pods:
            about, own = pod["metadata"], pod["metadata"].get("labels") or {}
            if pod["ended"] or not labels.is_of(pod, self._owner) or own.get(labels.SENTINEL) not in led - {None}:
                continue
            name = str(about["name"])
            facts = GatewayPodFacts(
                name=name,
                uid=about["uid"],
                sentinel=own[labels.SENTINEL],
                is_ready=pod["ready"],
                is_out=is_out(pod),
                is_stale=bool(silence.stale({name})),
                is_heard=silence.is_heard(name),
                has_judged=has_judged(pod, routes),
            )
            found.append(facts)
        return found

    def _nodes_changed(self, changed: Callable[[str], None]) -> None:
        """What is reached by the nodes' addresses is reached otherwise now."""
        for service in self._watched.caches["Service"]:
            key = labels.key_of(service)
            if key is not None and service["spec"].get("type") == "NodePort":
                changed(key)

    def _pod_changed(self, change: Change, changed: Callable[[str], None]) -> None:
        """A sentinel's pod has come, gone or become ready: routes may wait for it, or no longer."""
        old, new = change.old, change.new
        is_news = candidate_of(change.object) or (old or {}).get("fault") != (new or {}).get("fault")
        if is_news and labels.is_of(change.object, self._owner):
            key = labels.key_of(change.object)
            if key is not None:
                changed(key)
        if old is not None and new is not None and (old["ready"], old["ended"]) == (new["ready"], new["ended"]):
            return
        self._routes_changed(change.object, changed)

    def _routes_changed(self, pod: Obj, changed: Callable[[str], None]) -> None:
        """Of the routes that a pod serves."""
        for route in self._watched.caches[ROOTS["route"].kind]:
            key = labels.key_of(route)
            environment = str((route["metadata"].get("labels") or {}).get(labels.ENVIRONMENT) or "")
            if key is not None and serves(pod, environment):
                changed(key)

    async def _wait_for_kinds(self) -> None:
        failures = 0
        while True:
            try:
                return await self._installation.kinds()
            except (ApiError, TransportError) as error:
                failures += 1
                if failures == 1:
                    log.warning("the sentinels' custom kinds cannot be installed yet", reason=str(error))
                await self._clock.sleep(_BACKOFF.delay_s(failures, self._random))

    def report(self, key: str) -> pb.SentinelReport | None:
        kind, _ = split_key(key)
        root = self._root(kind, key)
        if root is None:
            return None
        if kind == "sentinel":
            report = sentinel_report(root, self._watched.of("Service", key), self._watched.caches["Node"])
            pods, counters = self._pods(), self._watched.of(_STATS, key)
            own_pods = [pod for pod in self._watched.caches["Pod"] if labels.key_of(pod) == key]
            report.stats = self._stats(root, counters, {pod["metadata"]["name"]: candidate_of(pod) for pod in own_pods})
            report.reason, report.message = gateway_fault(root, (pod for pod in own_pods if not candidate_of(pod)))
            report.splits = True
            if self._memory.has_written(key) and self._memory.recall(key, root) is None:
                report.running_image = ""  # what is seen of it is older than what was written
            if (beside := self._candidate(key)) is not None:
                report.candidate = candidate_report(beside, own_pods)
            if self._silence is not None:
                own = {pod for one in counters for pod in one.get("data") or {}}
                report.stale = self._silence.stale(own & pods)
                report.taken_out = sorted(
                    str(pod["metadata"]["name"])
                    for pod in self._watched.caches["Pod"]
                    if pod["metadata"]["name"] in own and is_out(pod)
                )
        else:
            report = pb.SentinelReport(verdicts=verdicts(root))
            if kind == "route":
                report.waiting = self._waiting(key, root)
        report.drift = self._memory.drift(key)
        return report

    def _root(self, kind: str, key: str) -> Obj | None:
        """What stands for a key. A copy has the same labels: what we applied is preferred, then what is older."""
        found = [each for each in self._watched.of(ROOTS[kind].kind, key) if not candidate_of(each)]
        return min(found, key=lambda each: (not self._memory.knows(key, each), *age_of(each)), default=None)

    def _candidate(self, key: str) -> Obj | None:
        """The Deployment of the newest version that is being rolled out."""
        found = [each for each in self._watched.of(ROOTS["sentinel"].kind, key) if candidate_of(each)]
        return max(found, key=candidate_of, default=None)

    def _stats(self, root: Obj, counters: Iterable[Obj], candidates: Mapping[str, int]) -> bytes:
        """``candidates``: by pod, the revision that it was made for while that was rolled out."""
        environment = str((root["metadata"].get("labels") or {}).get(labels.ENVIRONMENT) or "")
        specs = (route.get("spec") or {} for route in self._watched.caches[ROOTS["route"].kind])
        judged = under_test(spec for spec in specs if environment in ("", spec.get("environment")))
        is_split = any(candidates.values())
        found = {
            pod: self._samplings.stamped(
                pod, entry, judged=is_split or not judged.isdisjoint(entry["deployments"])
            ) | ({"revision": candidates[pod]} if candidates.get(pod) else {})
            for pod, entry in entries_of(counters).items()
        }  # fmt: skip
        return owned_stats(found, judged)

    def delivered(self, report: Report) -> None:
        if isinstance(report, pb.SentinelReport):
            self._samplings.delivered(report.stats)

    def _waiting(self, key: str, route: Obj) -> list[str]:
        pods = self._watched.caches["Pod"]
        if not pods.synced.is_set():
            return [UNKNOWN]
        drained = self._serving.drained if self._serving is not None else ()
        return waiting(route, pods, seen=self._memory.recall(key, route) is not None, drained=drained)

    def _pods(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self._watched.caches["Pod"]}

    def keys(self) -> Iterable[str]:
        return self._watched.keys(root.kind for root in ROOTS.values())

    @property
    def synced(self) -> bool:
        return self._watched.synced

    @property
    def refusal(self) -> str:
        return self._watched.refusal

    def _scope(self, kind: str) -> Scope:
        return Scope(namespace=NAMESPACE_SENTINEL, label_selector=labels.selector(self._owner, kind))
