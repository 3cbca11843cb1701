"""Pods of workers, pure: built from the template of a ShardConfig, and the state of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil

import orjson
from msgspec import structs

from shoal.crds.shard import API_VERSION, ConfigSpec, seconds
from shoal.kube.objects import Obj
from shoal.kube.quantity import parse
from shoal.sharding.manager.lifecycle import PodState
from shoal.sharding.manifests import CONTAINER_SECURITY, WORKER_PORT
from shoal.sharding.model import CONFIG_LABEL, SHARD_LABEL
from shoal.sharding.rbac import WORKER

_OWN_IMAGE = "shoal/shard-worker"
_STARTING = ("ContainerCreating", "PodInitializing")
_STARTUP_PROBES = 30  # of two seconds each: a minute to start on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinWorker:
    """The pods of built-in workers. Without an ``image`` it is the one that Shoal's own nodes know."""

    image: str = ""
    webhook_networks: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)  # further variables of the workers

    def completed(self, spec: ConfigSpec) -> ConfigSpec:
        """The spec with the template of built-in workers, where it has no workers of its own."""
        return structs.replace(spec, template=self._template()) if spec.built_in else spec

    def _template(self) -> Obj:
        networks = [flag for network in self.webhook_networks for flag in ("--webhook-network", network)]
        container: Obj = {
            "name": "worker",
            "image": self.image or _OWN_IMAGE,
            "args": ["--port", str(WORKER_PORT), *networks],
            "env": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                *({"name": name, "value": value} for name, value in self.env.items()),
            ],
            "ports": [{"name": "health", "containerPort": WORKER_PORT}],
            "startupProbe": {**_probe("/livez", 2), "failureThreshold": _STARTUP_PROBES},
            "livenessProbe": {**_probe("/livez", 10), "failureThreshold": 3},
            "readinessProbe": _probe("/readyz", 5),
        }
        if self.image:
            container |= {"command": ["shoal", "shard", "worker"], "securityContext": CONTAINER_SECURITY}
        return {"spec": {"serviceAccountName": WORKER, "containers": [container]}}


def _probe(path: str, period_s: int) -> Obj:
    return {"httpGet": {"path": path, "port": WORKER_PORT}, "periodSeconds": period_s, "timeoutSeconds": 5}


def template_hash(spec: ConfigSpec) -> str:
    """Identifies the template of the workers; empty when the manager does not create their pods."""
    if spec.template is None:
        return ""
    made = orjson.dumps([spec.template, spec.resources], option=orjson.OPT_SORT_KEYS)
    return blake2b(made, digest_size=5).hexdigest()


def instance_reference(instance: Obj) -> Obj:
    about = instance["metadata"]
    return {
        "apiVersion": API_VERSION, "kind": "ShardInstance", "name": about["name"], "uid": about["uid"],
        "controller": True,
    }  # fmt: skip


def worker_pod(spec: ConfigSpec, config: str, instance: Obj) -> Obj:
    """The pod of a shard. Pod, Lease and shard have the same name."""
    template = spec.template or {}
    about, name = template.get("metadata") or {}, instance["metadata"]["name"]
    namespace = instance["metadata"]["namespace"]
    inside: Obj = {"restartPolicy": "Always", **(template.get("spec") or {})}
    grace_s = ceil(seconds(spec.graceful_shutdown_timeout))
    inside.setdefault("terminationGracePeriodSeconds", grace_s)
    given = {
        "SHARD_ID": name,
        "SHARD_CONFIG": config,
        "SHARD_NAMESPACE": namespace,
        "SHARD_TERM_GRACE_S": str(inside["terminationGracePeriodSeconds"]),
    }
    inside["containers"] = [_container(each, given, spec.resources) for each in inside.get("containers") or ()]
    metadata: Obj = {
        "name": name,
        "namespace": namespace,
        "labels": {**(about.get("labels") or {}), CONFIG_LABEL: config, SHARD_LABEL: name},
        "ownerReferences": [instance_reference(instance)],
    }
    if about.get("annotations"):
        metadata["annotations"] = dict(about["annotations"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": inside}


def _container(container: Obj, given: dict[str, str], resources: Obj | None) -> Obj:
    own = container.get("env") or []
    named = {each["name"] for each in own}
    allowed = container.get("resources") or resources or {}
    given = {**given, **_limits(allowed.get("limits") or {})}
    env = [*({"name": name, "value": value} for name, value in given.items() if name not in named), *own]
    made = {**container, "env": env}
    if allowed:
        made["resources"] = allowed
    return made


def _limits(limits: Obj) -> dict[str, str]:
    """The limits that a worker's load is relative to."""
    made = {}
    if "cpu" in limits:
        made["SHARD_CPUS"] = f"{parse(str(limits['cpu'])).milli() / 1000:g}"
    if "memory" in limits:
        made["SHARD_MEMORY_BYTES"] = str(parse(str(limits["memory"])).value())
    return made


def pod_problem(pod: Obj | None) -> str:
    """Why a pod does not start; empty: no reason is known."""
    status = (pod or {}).get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ")
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in _STARTING:
            return f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")
    return ""


def pod_state(pod: Obj | None, *, expected: bool) -> PodState:
    if pod is None:
        return PodState.MISSING if expected else PodState.NONE
    if pod["metadata"].get("deletionTimestamp"):
        return PodState.LEAVING
    phase = (pod.get("status") or {}).get("phase", "")
    if phase in ("Failed", "Succeeded"):
        return PodState.ENDED
    return PodState.RUNNING if phase == "Running" else PodState.STARTING
