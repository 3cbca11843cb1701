"""A node, a sandbox and a container spec for the tests of the Docker runtime."""

from __future__ import annotations

from typing import Any

from shoal.node.runtime.docker import bodies
from shoal.node.runtime.docker.config import DockerConfig
from shoal.node.runtime.model import (
    ContainerSpec,
    Image,
    Sandbox,
)

CONFIG = DockerConfig(cluster="c1", node="node-1")


CREATE_CONTEXT = bodies.CreateContext(config=CONFIG)


SANDBOX = Sandbox(
    id="f" * 64, pod_uid="u1", namespace="ns", name="web", attempt=0, ready=True, addresses=("10.1.2.3",), created_at=1.0
)  # fmt: skip


def a_spec(**more: Any) -> ContainerSpec:
    image = Image(id="sha256:1", names=("busybox:1",), entrypoint=("/entry",), command=("arg",))
    return ContainerSpec(name="main", attempt=2, image=image, image_reference="busybox:1", **more)
