"""Resource requests of pods and capacities of nodes, as integers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from shoal.kube import quantity
from shoal.kube.objects import Obj
from shoal.scheduler.model import Requests

Amounts = dict[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
STORAGE: Final = "ephemeral-storage"
_SCORED: Final = {CPU: 100, MEMORY: 200 * 1024 * 1024}  # assumed needs of a container without requests, for scoring
_POD_LEVEL: Final = (CPU, MEMORY, "hugepages-")


@lru_cache(maxsize=8192)
def amount(name: str, text: str) -> int:
    """A quantity of a resource: cpu in thousandths, everything else in units."""
    parsed = quantity.parse(str(text))
    return parsed.milli() if name == CPU else parsed.value()


def amounts(resources: Mapping[str, str] | None) -> Amounts:
    return {name: amount(name, text) for name, text in (resources or {}).items()}


def requests_of(spec: Obj) -> Requests:
    """The resources that a pod requests in total."""
    real = _total(spec, {})
    scored = _total(spec, _SCORED)
    return Requests(
        cpu=real.pop(CPU, 0),
        memory=real.pop(MEMORY, 0),
        storage=real.pop(STORAGE, 0),
        others=real,
        scored_cpu=scored.get(CPU, 0),
        scored_memory=scored.get(MEMORY, 0),
    )


def _total(spec: Obj, assumed: Amounts) -> Amounts:
    """The sum of concurrent containers, or more if an init container needs more; pod-level requests override it, and
    the pod's overhead is added."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _of_container(container, assumed))
    beside: Amounts = {}  # sidecars that have started
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        wanted = _of_container(container, assumed)
        step = dict(beside)
        _add(step, wanted)
        _raise(peak, step)
        if container.get("restartPolicy") == "Always":
            _add(total, wanted)
            beside = step
    _raise(total, peak)
    for name, value in amounts((spec.get("resources") or {}).get("requests")).items():
        if name.startswith(_POD_LEVEL):
            total[name] = value
    _add(total, amounts(spec.get("overhead")))
    return total


def _of_container(container: Obj, assumed: Amounts) -> Amounts:
    return {**assumed, **amounts((container.get("resources") or {}).get("requests"))}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for name, value in more.items():
        total[name] = total.get(name, 0) + value


def _raise(total: Amounts, floor: Mapping[str, int]) -> None:
    for name, value in floor.items():
        if total.get(name, 0) < value:
            total[name] = value
