"""Pods of workers: built from the template, with their identity and limits in the environment."""

from __future__ import annotations

from typing import Any

from shoal.crds.shard import ConfigSpec
from shoal.sharding.manager.pods import BuiltinWorker, worker_pod

INSTANCE = {"metadata": {"name": "web-1", "namespace": "default", "uid": "u"}}
LIMITS = {"limits": {"cpu": "500m", "memory": "512Mi"}}


def made(container: dict[str, Any], resources: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, str]]:
    spec = ConfigSpec(template={"spec": {"containers": [{"name": "w", **container}]}}, resources=resources)
    (found,) = worker_pod(spec, "web", INSTANCE)["spec"]["containers"]
    return found, {each["name"]: each["value"] for each in found["env"]}


def test_a_worker_gets_its_limits_to_report_its_load_relative_to_them() -> None:
    container, env = made({}, LIMITS)
    assert container["resources"] == LIMITS
    assert (env["SHARD_ID"], env["SHARD_CPUS"], env["SHARD_MEMORY_BYTES"]) == ("web-1", "0.5", str(512 << 20))


def test_settings_of_the_template_take_precedence() -> None:
    own = {"limits": {"cpu": "2"}}
    container, env = made({"resources": own, "env": [{"name": "SHARD_CPUS", "value": "1"}]}, LIMITS)
    assert container["resources"] == own
    assert env["SHARD_CPUS"] == "1"
    assert "SHARD_MEMORY_BYTES" not in env
    bare, env = made({}, None)
    assert "resources" not in bare
    assert "SHARD_CPUS" not in env


def test_pods_of_built_in_workers_have_probes_of_their_health_port() -> None:
    spec = BuiltinWorker().completed(ConfigSpec())
    (container,) = worker_pod(spec, "web", INSTANCE)["spec"]["containers"]
    (port,) = container["ports"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: get["path"] for name, get in probes.items()} == {
        "startup": "/livez", "liveness": "/livez", "readiness": "/readyz",
    }  # fmt: skip
    assert {get["port"] for get in probes.values()} == {port["containerPort"]}
    assert str(port["containerPort"]) in container["args"]


def test_built_in_workers_get_further_variables() -> None:
    spec = BuiltinWorker(env={"SHOAL_TRACES": "otlp"}).completed(ConfigSpec())
    (container,) = worker_pod(spec, "web", INSTANCE)["spec"]["containers"]
    assert {"name": "SHOAL_TRACES", "value": "otlp"} in container["env"]
