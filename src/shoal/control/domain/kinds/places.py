"""Region, Cluster and Sentinel: where things run, and what lets traffic in."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_address_with_port, is_image, is_name, is_plain
from shoal.control.domain.kinds.scopes import MAX_GATEWAYS, read_sizes
from shoal.errors import duplicate
from shoal.kube.names import is_label_value, is_qualified_name

DEFAULT_SHARD = "default"
EFFECTS = ("NoSchedule", "PreferNoSchedule")
SERVICES = ("ClusterIP", "NodePort", "LoadBalancer")


@dataclass(frozen=True, slots=True)
class Entrance:
    """How the gateways of a region are reached: their kind of Service, and where gateways of other regions come in, if
    that is not what the Service says."""

    service: str = SERVICES[0]
    entries: tuple[str, ...] = ()  # ADDRESS:PORT


@dataclass(frozen=True, slots=True)
class RegionObject:
    platform: str = ""
    can_schedule: bool = True
    distances: tuple[tuple[str, int], ...] = ()  # to other regions; smaller is nearer
    gateways: Entrance = Entrance()


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a cluster takes; None where nothing is said."""

    cpu_millicores: int | None = None
    memory_mib: int | None = None
    deployments: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    region: str
    shards: tuple[str, ...] = (DEFAULT_SHARD,)
    taints: tuple[Taint, ...] = ()
    capacity: Capacity = Capacity()
    can_schedule: bool = True
    agent_image: str = ""  # that the Deployments of its agents run; empty: as they were installed


@dataclass(frozen=True, slots=True)
class SentinelSpec:
    """The gateway of an environment in a region; without an environment, the one its environments share there."""

    region: str
    image: str = ""
    replicas: int = 0
    cpu_millicores: int = 0
    memory_mib: int = 0
    cluster: str = ""  # empty: placed
    desired: str = "running"


def read_region(spec: Reader) -> RegionObject:
    distances = spec.part("distances")
    found: list[tuple[str, int]] = []
    if distances is not None:
        raw = spec.raw("distances")
        names = sorted(raw) if isinstance(raw, dict) else []
        found = [(name, distances.integer(name, 0, 0, 1_000_000)) for name in names]
    made = RegionObject(
        spec.text("platform", check=is_plain),
        spec.flag("canSchedule", True),
        tuple(found),
        _entrance(spec.part("gateways")),
    )
    spec.close()
    return made


def _entrance(part: Reader | None) -> Entrance:
    if part is None:
        return Entrance()
    made = Entrance(
        service=part.choice("service", SERVICES, SERVICES[0]),
        entries=part.texts("entries", check=is_address_with_port, most=16, unique=True),
    )
    part.close()
    return made


def read_cluster(spec: Reader) -> ClusterSpec:
    made = ClusterSpec(
        region=spec.text("region", need=True, check=is_name),
        shards=spec.texts("shards", check=is_name, most=100, unique=True) or (DEFAULT_SHARD,),
        taints=_taints(spec),
        capacity=_capacity(spec.part("capacity")),
        can_schedule=spec.flag("canSchedule", True),
        agent_image=spec.text("agentImage", check=is_image),
    )
    spec.close()
    return made


def _taints(spec: Reader) -> tuple[Taint, ...]:
    found: list[Taint] = []
    for part in spec.parts("taints", 100):
        taint = Taint(
            key=part.text("key", need=True, check=is_qualified_name),
            value=part.text("value", check=is_label_value),
            effect=part.choice("effect", EFFECTS, "NoSchedule"),
        )
        if any((other.key, other.effect) == (taint.key, taint.effect) for other in found):
            part.note(duplicate(part.at("key"), taint.key))
        part.close()
        found.append(taint)
    return tuple(found)


def _capacity(part: Reader | None) -> Capacity:
    if part is None:
        return Capacity()
    cpu, memory = part.quantity("cpu"), part.quantity("memory")
    deployments = part.integer("deployments", 0, 0, 10**9) if part.has("deployments") else None
    part.raw("deployments")
    part.close()
    return Capacity(
        None if cpu is None else cpu.milli(), None if memory is None else memory.value() // 2**20, deployments
    )


def read_sentinel(spec: Reader) -> SentinelSpec:
    cpu, memory = read_sizes(spec.part("resources"))
    made = SentinelSpec(
        region=spec.text("region", need=True, check=is_name),
        image=spec.text("image", check=is_image),
        replicas=spec.integer("replicas", 0, 1, MAX_GATEWAYS),
        cpu_millicores=cpu,
        memory_mib=memory,
        cluster=spec.text("cluster", check=is_name),
        desired=spec.choice("desired", ("running", "stopped"), "running"),
    )
    spec.close()
    return made
