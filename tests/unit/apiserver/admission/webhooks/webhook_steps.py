"""Steps that the tests of webhooks share."""

from __future__ import annotations

from typing import Any

from shoal.apiserver.writing.model import Author, Write
from shoal.kube.objects import Obj
from shoal.testing.servers import LocalServer, ServerAnswer

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def configure(server: LocalServer, configuration: Obj) -> Obj:
    plural = configuration["kind"].lower() + "s"
    made: Obj = await server.post(f"{REGISTRATION}/{plural}", configuration)
    return made


async def create(server: LocalServer, name: str = "a", target: str = CONFIGMAPS, **fields: Any) -> ServerAnswer:
    return await server.call("POST", target, {"metadata": {"name": name}, **fields})


async def store_trusted(server: LocalServer, group: str, version: str, plural: str, obj: Obj) -> None:
    """Store what clients may not: old objects that later rules forbid, endpoints on the loopback address."""
    served = server.server.core.registry.get(group, version, plural)
    assert served is not None
    await server.server.writer.store(Write.own(served, obj, None, Author("test"), trusted=True))


def pod(name: str = "p") -> Obj:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]},
    }
