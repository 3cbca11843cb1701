"""Project and Environment: what other objects are in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_image, is_name, is_plain
from shoal.control.domain.kinds.gateway_rollout import read_gateway_rollout
from shoal.control.domain.kinds.rollout import read_fields
from shoal.control.rollout.strategy import Strategy
from shoal.errors import not_supported
from shoal.kube.names import Faults

MAX_GATEWAYS = 100
GATEWAY = ("on", "off")
_TAKEN = ("shoal-system", "sentinel")


@dataclass(frozen=True, slots=True)
class ProjectSpec:
    description: str = ""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How the gateways of an environment are made. ``shared``: use the region's shared one where there is one."""

    image: str = ""
    replicas: int = 0
    cpu_millicores: int = 0
    memory_mib: int = 0
    shared: bool = True
    rollout: Strategy = Strategy()  # how another image or size reaches them


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    description: str = ""
    sentinel: GatewaySettings = GatewaySettings()
    rollout: dict[str, Any] = field(default_factory=dict)  # defaults of its apps, as written
    image_pull_secrets: tuple[str, ...] = ()  # of its apps that name none themselves
    gateway: bool = True  # whether it has gateways at all
    namespace: str = ""  # in every cluster; empty: the control plane names one


def is_namespace(value: str) -> Faults:
    """A namespace for apps: not one of the cluster itself or of Shoal."""
    if value.startswith("kube-") or value in _TAKEN:
        return ("must not be a namespace of the cluster or of Shoal",)
    return is_name(value)


def read_project(spec: Reader) -> ProjectSpec:
    made = ProjectSpec(spec.text("description", check=is_plain))
    spec.close()
    return made


def read_environment(spec: Reader) -> EnvironmentSpec:
    part, rollout, written = spec.part("sentinel"), spec.part("rollout"), spec.raw("rollout")
    if rollout is not None:
        read_fields(rollout)
    made = EnvironmentSpec(
        spec.text("description", check=is_plain),
        _settings(part) if part else GatewaySettings(rollout=read_gateway_rollout(None)),
        dict(written) if isinstance(written, dict) else {},
        spec.texts("imagePullSecrets", check=is_name, unique=True),
        _gateway(spec),
        spec.text("namespace", check=is_namespace),
    )
    spec.close()
    return made


def _gateway(spec: Reader) -> bool:
    """``on`` and ``off`` are true and false in YAML without quotes."""
    value = spec.raw("gateway")
    if value not in (None, True, False, *GATEWAY):
        spec.note(not_supported(spec.at("gateway"), value, GATEWAY))
    return value not in (False, GATEWAY[1])


def _settings(part: Reader) -> GatewaySettings:
    cpu, memory = read_sizes(part.part("resources"))
    made = GatewaySettings(
        image=part.text("image", check=is_image),
        replicas=part.integer("replicas", 0, 1, MAX_GATEWAYS),
        cpu_millicores=cpu,
        memory_mib=memory,
        shared=part.flag("shared", True),
        rollout=read_gateway_rollout(part.part("rollout")),
    )
    part.close()
    return made


def read_sizes(part: Reader | None) -> tuple[int, int]:
    """Thousandths of a core and MiB; 0 where nothing was said."""
    if part is None:
        return 0, 0
    cpu, memory = part.quantity("cpu"), part.quantity("memory")
    part.close()
    return cpu.milli() if cpu else 0, -(-memory.value() // 2**20) if memory else 0
