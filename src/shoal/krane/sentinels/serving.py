"""Takes sentinel pods that are silent out of their Service, and puts them back when they are heard again.

A silent pod serves its last routes for as long as its connections last, and never takes new ones, so the exchange of a
revision would wait for it. The Service of a sentinel leads only to pods with a label; krane sets the label of a
silent pod to another value, as long as another pod of the sentinel serves and is heard. Once the pod's connections have
had time to end, no route waits for it any more. It is put back when it writes its counters again and has judged every
route as it is now, or when no other pod serves: old routes are better than none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.base.logs import get_logger
from shoal.client import Client, TransportError, builtin
from shoal.errors import ApiError
from shoal.krane.labels import FIELD_MANAGER_KRANE, NAMESPACE_SENTINEL, SERVING
from shoal.krane.sentinels.render import SERVING_LABEL
from shoal.kube.objects import Obj

log = get_logger("krane.sentinels")

SERVES, OUT = SERVING_LABEL[SERVING], "false"
"""Values of the label."""
DRAIN_S = 30.0
LOOK_S = 5.0
_PODS = builtin("pods")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayPodFacts:
    """A pod of a sentinel that has not ended."""

    name: str
    uid: str
    sentinel: str
    is_ready: bool
    is_out: bool
    is_stale: bool
    is_heard: bool  # seen to write, not only not yet silent
    has_judged: bool  # every route as it is now


def out_of_service(pods: Iterable[GatewayPodFacts]) -> set[str]:
    """The pods that should be out of their Service: silent ones of sentinels that another pod serves. Pure.

    An agent that has just started has heard no pod yet: it takes none out, and leaves out those that are."""
    sentinels: dict[str, list[GatewayPodFacts]] = {}
    for pod in pods:
        sentinels.setdefault(pod.sentinel, []).append(pod)
    found: set[str] = set()
    for members in sentinels.values():
        silent = [pod for pod in members if pod.is_stale or (pod.is_out and not (pod.is_heard and pod.has_judged))]
        serving = [pod for pod in members if pod.is_ready and pod not in silent]
        is_sure = any(pod.is_heard for pod in serving)
        found |= {pod.name for pod in silent if serving and (pod.is_out or is_sure)}
    return found


def is_out(pod: Obj) -> bool:
    return (pod["metadata"].get("labels") or {}).get(SERVING) == OUT


def demands_label(service: Obj) -> bool:
    """Whether a Service leads to labelled pods only; those of earlier versions lead to all."""
    return SERVING in (service["spec"].get("selector") or {})


class ServingPods:
    """``run`` it as a task. ``facts`` are of the pods whose Service demands the label, ``pods`` all that are there."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        facts: Callable[[], list[GatewayPodFacts]],
        pods: Callable[[], Iterable[Obj]],
        changed: Callable[[str], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._facts = facts
        self._pods = pods
        self._changed = changed
        self._since: dict[str, float] = {}  # by pod: since when it is seen to be out
        self._drained: frozenset[str] = frozenset()

    @property
    def drained(self) -> frozenset[str]:
        """Pods that are out and whose connections have had time to end: no route waits for them."""
        return self._drained

    async def run(self) -> None:
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Take out what is silent, put back what is heard, and tell of pods whose state has changed."""
        facts, was_drained = self._facts(), self._drained
        wanted = out_of_service(facts)
        for pod in facts:
            if pod.name in wanted and not pod.is_out:
                await self._label(pod, OUT)
            elif pod.is_out and pod.name not in wanted:
                self._drained -= {pod.name}  # routes wait for it before the Service leads to it
                await self._label(pod, SERVES)
        now = self._clock.monotonic()
        out = {str(pod["metadata"]["name"]) for pod in self._pods() if is_out(pod)}
        before, self._since = self._since, {name: self._since.get(name, now) for name in out}
        back = {pod.name for pod in facts} - wanted
        self._drained = frozenset(name for name, at in self._since.items() if now - at >= DRAIN_S) - back
        told = (before.keys() ^ out) | (was_drained ^ self._drained)
        for name in sorted(told):
            self._changed(name)

    async def _label(self, pod: GatewayPodFacts, value: str) -> None:
        about = {"name": pod.name, "namespace": NAMESPACE_SENTINEL, "uid": pod.uid, "labels": {SERVING: value}}
        wanted = {"apiVersion": "v1", "kind": "Pod", "metadata": about}
        try:
            await self._client.of(_PODS).apply(wanted, field_manager=FIELD_MANAGER_KRANE, force=True)
        except (ApiError, TransportError) as error:  # it has gone, or the agent may not: the next look tries again
            log.warning("a gateway's pod cannot be labelled", pod=pod.name, serving=value, reason=str(error))
            return
        said = "is silent and was taken out of its Service" if value == OUT else "was put back into its Service"
        log.warning(f"a gateway's pod {said}", pod=pod.name)
