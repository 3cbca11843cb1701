"""The containers of a pod: their roles, from the spec, and their attempts, from the runtime.

Every start of a container is a new *attempt*, with the same name and a higher number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from shoal.kube.objects import Obj
from shoal.node.runtime.model import Container


class ContainerRole(StrEnum):
    """The role of a container in its pod."""

    INIT = "init"  # runs to completion before the next one starts
    SIDECAR = "sidecar"  # an init container that keeps running
    MAIN = "main"
    EPHEMERAL = "ephemeral"


@dataclass(frozen=True, slots=True)
class ContainerWait:
    """Why a container does not run, as its status says it."""

    reason: str
    message: str = ""


def is_sidecar(container: Obj) -> bool:
    return container.get("restartPolicy") == "Always"


def init_containers(pod: Obj) -> Iterator[tuple[Obj, ContainerRole]]:
    for each in pod["spec"].get("initContainers") or ():
        yield each, ContainerRole.SIDECAR if is_sidecar(each) else ContainerRole.INIT


def all_containers(pod: Obj) -> Iterator[tuple[Obj, ContainerRole]]:
    """Every container of the spec with its role: init and sidecar, main, ephemeral."""
    yield from init_containers(pod)
    for each in pod["spec"]["containers"]:
        yield each, ContainerRole.MAIN
    for each in pod["spec"].get("ephemeralContainers") or ():
        yield each, ContainerRole.EPHEMERAL


def find(pod: Obj, name: str) -> tuple[Obj, ContainerRole] | None:
    return next((found for found in all_containers(pod) if found[0]["name"] == name), None)


def newest(containers: Iterable[Container]) -> dict[str, Container]:
    """The latest attempt of each container by name."""
    found: dict[str, Container] = {}
    for each in containers:
        known = found.get(each.name)
        if known is None or (each.attempt, each.created_at) > (known.attempt, known.created_at):
            found[each.name] = each
    return found


def previous(containers: Iterable[Container], current: Container) -> Container | None:
    """The newest other attempt of the same container."""
    found = [each for each in containers if each.name == current.name and each.id != current.id]
    return max(found, key=lambda each: (each.attempt, each.created_at), default=None)
