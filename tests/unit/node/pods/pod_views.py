"""Pods, containers and views for the tests of the plan and the status."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shoal.node.pods.model import (
    PodView,
)
from shoal.node.pods.restarts import hash_of
from shoal.node.runtime.model import Container, ContainerPhase, Sandbox

NOW = 1_700_000_000.0


SANDBOX = Sandbox(
    id="s", pod_uid="u", namespace="default", name="p", attempt=0, ready=True, addresses=("10.0.0.9",), created_at=NOW
)


def a_pod(*containers: str, inits: tuple[str, ...] = (), sidecars: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    mains = [{"name": name, "image": f"{name}:1"} for name in containers or ("c",)]
    init = [{"name": name, "image": f"{name}:1"} for name in inits]
    init += [{"name": name, "image": f"{name}:1", "restartPolicy": "Always"} for name in sidecars]
    made = {"containers": mains, **({"initContainers": init} if init else {}), **spec}
    about = {"name": "p", "namespace": "default", "uid": "u", "generation": 1}
    return {"metadata": about, "spec": made, "status": {"phase": "Pending", "qosClass": "BestEffort"}}


def a_container(
    name: str = "c", phase: ContainerPhase = ContainerPhase.RUNNING, code: int = 0, **more: Any
) -> Container:
    made = Container(
        id=f"{name}-{more.get('attempt', 0)}", sandbox_id="s", pod_uid="u", name=name, attempt=0, phase=phase,
        image_id="i", image_reference=f"{name}:1", created_at=NOW, hash=hash_of({"name": name, "image": f"{name}:1"}),
    )  # fmt: skip
    if phase is not ContainerPhase.CREATED:
        made = replace(made, started_at=NOW)
    if phase is ContainerPhase.EXITED:
        made = replace(made, finished_at=NOW, exit_code=code)
    return replace(made, **more)


def a_view(pod: dict[str, Any], *containers: Container, **more: Any) -> PodView:
    return PodView(
        **{
            "pod": pod,
            "old": pod["status"],
            "sandbox": SANDBOX,
            "containers": containers,
            "started_at": NOW,
            "host_addresses": ("192.0.2.1",),
            **more,
        }  # fmt: skip
    )


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}
