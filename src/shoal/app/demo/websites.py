"""The sample of a sharded controller: a Website becomes a ConfigMap with its page and a Deployment that serves it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.kube.objects import Obj
from shoal.sharding.worker import Owned, ShardedController

GROUP, VERSION, KIND = "example.shoal.dev", "v1", "Website"
NAME = "websites"

app = ShardedController()


@app.reconcile(GROUP, KIND, controls=[("", "ConfigMap"), ("apps", "Deployment")])
async def website(owned: Owned) -> None:
    """Called when a Website or an object it owns changes."""
    name = owned.key.name
    page = str(owned.spec.get("page", f"<h1>{name}</h1>"))
    await owned.ensure_child(page_map(name, page))
    served = await owned.ensure_child(deployment(name, owned.spec))
    ready = (served.get("status") or {}).get("readyReplicas", 0)
    await owned.update_status({"ready": ready, "observedGeneration": owned.object["metadata"]["generation"]})


def page_map(name: str, page: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-page"}, "data": {"index.html": page}}


def deployment(name: str, spec: Obj) -> Obj:
    labels = {"website": name}
    container: Obj = {
        "name": "web",
        "image": spec.get("image", "shoal/echo"),
        "volumeMounts": [{"name": "page", "mountPath": "/page"}],
    }
    if "command" in spec:
        container["command"] = spec["command"]
    pod = {"containers": [container], "volumes": [{"name": "page", "configMap": {"name": f"{name}-page"}}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": spec.get("replicas", 1),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def definition() -> Obj:
    """The CustomResourceDefinition of Websites."""
    text: dict[str, Any] = {"type": "string"}
    spec = {
        "type": "object",
        "properties": {
            "page": text,
            "image": text,
            "command": {"type": "array", "items": text},
            "replicas": {"type": "integer", "minimum": 0, "default": 1},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
            {"name": "Ready", "type": "integer", "jsonPath": ".status.ready"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
    }
    names = {"plural": "websites", "singular": "website", "kind": KIND, "listKind": f"{KIND}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"websites.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def sample(count: int, env: Mapping[str, str] | None = None) -> list[Obj]:
    """A ShardConfig with two to ten workers, and websites with zero instances: objects to reconcile, without pods.
    ``env`` are variables of the workers."""
    worker: Obj = {"name": "worker", "image": "shoal/shard-worker", "args": ["shoal.app.demo.websites:app"]}
    if env:
        worker["env"] = [{"name": name, "value": value} for name, value in env.items()]
    controlled = [{"kind": "ConfigMap"}, {"group": "apps", "kind": "Deployment"}]
    spec: Obj = {
        "minShards": 2,
        "maxShards": 10,
        "scaleUpThreshold": 0.8,
        "scaleDownThreshold": 0.3,
        "loadBalanceStrategy": "consistent-hash",
        "healthCheckInterval": "30s",
        "leaseDuration": "6s",
        "heartbeatInterval": "2s",
        "targets": [{"group": GROUP, "kind": KIND, "controlled": controlled}],
        "template": {"spec": {"serviceAccountName": "shard-worker", "containers": [worker]}},
    }
    about = {"name": NAME, "namespace": "default"}
    config = {"apiVersion": "shard.io/v1", "kind": "ShardConfig", "metadata": about, "spec": spec}
    return [config, *(_website(f"site-{number}") for number in range(count))]


def _website(name: str) -> Obj:
    about = {"name": name, "namespace": "default"}
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": about, "spec": {"replicas": 0}}
