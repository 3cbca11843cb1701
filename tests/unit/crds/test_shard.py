"""The definitions of sharding: a server accepts the documented examples unchanged and names mistakes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shoal.crds import shard_schema
from shoal.crds.shard import (
    API_VERSION,
    ConfigSpec,
    HandlerWebhook,
    HashRange,
    InstanceSpec,
    InstanceStatus,
    ShardHandler,
    WorkerLimits,
    definitions,
    read_config,
    read_instance,
    seconds,
    written,
)
from shoal.testing.servers import LocalServer, local_server

CONFIG = {
    "apiVersion": API_VERSION,
    "kind": "ShardConfig",
    "metadata": {"name": "example-config"},
    "spec": {
        "minShards": 2,
        "maxShards": 10,
        "scaleUpThreshold": 0.8,
        "scaleDownThreshold": 0.3,
        "loadBalanceStrategy": "consistent-hash",
        "healthCheckInterval": "30s",
        "resources": {
            "requests": {"cpu": "200m", "memory": "256Mi"},
            "limits": {"cpu": "500m", "memory": "512Mi"},
        },
    },
}
INSTANCE = {
    "apiVersion": API_VERSION,
    "kind": "ShardInstance",
    "metadata": {"name": "shard-001"},
    "spec": {"shardId": "shard-001", "hashRange": {"start": 0, "end": 1073741823}},
    "status": {
        "phase": "Running",
        "load": 0.65,
        "lastHeartbeat": "2024-01-15T10:30:00Z",
        "assignedResources": ["resource-001", "resource-002"],
    },
}
PATH = f"/apis/{API_VERSION}/namespaces/default"

MISTAKES = [
    ({"minShards": 5, "maxShards": 2}, "minShards must not exceed maxShards"),
    ({"scaleUpThreshold": 0.3}, "scaleDownThreshold must be below scaleUpThreshold"),
    ({"leaseDuration": "8s"}, "leaseDuration must be at least three times heartbeatInterval"),
    ({"heartbeatInterval": "10ms"}, "heartbeatInterval must be 100ms or more"),
    ({"leaseDuration": "900ms", "heartbeatInterval": "100ms"}, "leaseDuration must be 1s or more"),
    ({"loadBalanceStrategy": "random"}, "loadBalanceStrategy"),
    ({"minShards": 0}, "minShards"),
    ({"maxShards": 1001}, "maxShards"),
    ({"cooldown": "soon"}, "cooldown"),
    ({"targets": [{"group": "example.com"}]}, "kind"),
    ({"externalWorkers": True, "template": {}}, "template must not be set with externalWorkers"),
    ({"worker": {"concurrency": 0}}, "concurrency"),
    ({"worker": {"handlerTimeout": "0s"}}, "handlerTimeout must be more than 0"),
    ({"handler": {"webhook": {}}}, "url"),
    ({"handler": {"webhook": {"url": "ftp://example.com"}}}, "url"),
    ({"handler": {"webhook": {"url": "https://user:secret@example.com"}}}, "url"),
    ({"handler": {"webhook": {"url": "http://example.com", "timeout": "0s"}}}, "timeout must be more than 0"),
    ({"handler": {"webhook": {"url": "http://example.com", "caBundle": "YQ=="}}}, "caBundle needs an https:// url"),
    ({"customMetrics": [{"name": "orders", "target": 0}]}, "target must be more than 0"),
    ({"cost": {"perShardHour": 0, "budgetPerHour": 1}}, "perShardHour must be more than 0"),
]


async def installed(server: LocalServer) -> None:
    for definition in definitions():
        await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)


async def test_a_cluster_takes_the_documents_examples_unchanged_and_refuses_mistakes_by_name():
    async with local_server() as server:
        await installed(server)
        made = await server.post(f"{PATH}/shardconfigs", CONFIG)
        assert CONFIG["spec"].items() <= made["spec"].items()
        assert read_config(made) == read_config(CONFIG)
        await server.post(f"{PATH}/shardinstances", INSTANCE)
        kept = await server.get(f"{PATH}/shardinstances/shard-001")
        status = await server.put(f"{PATH}/shardinstances/shard-001/status", {**kept, "status": INSTANCE["status"]})
        assert status["status"] == INSTANCE["status"]
        for change, message in MISTAKES:
            body = {**CONFIG, "metadata": {"name": "wrong"}, "spec": {**CONFIG["spec"], **change}}
            answer = await server.call("POST", f"{PATH}/shardconfigs", body)
            assert (answer.status, message in answer.json["message"]) == (422, True), answer.json["message"]
        for name in ("x" * 41, "a.b"):
            answer = await server.call("POST", f"{PATH}/shardconfigs", {**CONFIG, "metadata": {"name": name}})
            assert answer.status == 422
        renamed = {**status, "spec": {"shardId": "shard-002"}}
        answer = await server.call("PUT", f"{PATH}/shardinstances/shard-001", renamed)
        assert "shardId cannot be changed" in answer.json["message"]


async def test_a_state_is_written_once_and_not_larger_than_allowed():
    async with local_server() as server:
        await installed(server)
        spec = {"config": "web", "slot": 5, "epoch": 7, "shard": "a", "data": "YQ==", "digest": "d"}
        body = {"apiVersion": API_VERSION, "kind": "ShardState", "metadata": {"name": "web-5-7"}, "spec": spec}
        made = await server.post(f"{PATH}/shardstates", body)
        answer = await server.call("PUT", f"{PATH}/shardstates/web-5-7", {**made, "spec": {**spec, "data": "Yg=="}})
        assert "written once" in answer.json["message"]
        fits = (shard_schema.STATE_LIMIT_BYTES + 2) // 3 * 4
        for size, status in ((fits, 201), (fits + 4, 422)):
            big = {**body, "metadata": {"name": f"web-5-{size}"}, "spec": {**spec, "data": "A" * size}}
            assert (await server.call("POST", f"{PATH}/shardstates", big)).status == status


@pytest.mark.parametrize(
    ("view", "schema"),
    [
        (ConfigSpec, shard_schema.CONFIG["properties"]["spec"]),
        (WorkerLimits, shard_schema.CONFIG["properties"]["spec"]["properties"]["worker"]),
        (ShardHandler, shard_schema.CONFIG["properties"]["spec"]["properties"]["handler"]),
        (HandlerWebhook, shard_schema.CONFIG["properties"]["spec"]["properties"]["handler"]["properties"]["webhook"]),
        (InstanceSpec, shard_schema.INSTANCE["properties"]["spec"]),
        (InstanceStatus, shard_schema.INSTANCE["properties"]["status"]),
    ],
)
def test_views_and_schemas_have_the_same_fields_and_defaults(view, schema):
    fields = {field.encode_name: field for field in msgspec.structs.fields(view)}
    assert set(fields) == set(schema["properties"])
    for name, part in schema["properties"].items():
        if "default" in part:
            assert fields[name].default == part["default"]


def test_a_config_without_targets_shares_sharded_resources_among_built_in_workers():
    alone = read_config(CONFIG)
    assert [(target.group, target.kind) for target in alone.targets] == [("shard.io", "ShardedResource")]
    assert alone.built_in
    own = {"group": "shard.io", "kind": "ShardedResource", "selector": {"matchLabels": {"tier": "a"}}}
    for spec, built_in in (
        ({"targets": [own]}, True),
        ({"targets": [own, {"kind": "ConfigMap"}]}, False),
        ({"template": {"spec": {}}}, False),
        ({"externalWorkers": True}, False),
    ):
        assert read_config({"spec": spec}).built_in == built_in, spec


def test_durations_are_read_as_go_writes_them():
    assert [seconds(text) for text in ("30s", "1m30s", "250ms", "1.5h", "")] == [30, 90, 0.25, 5400, 0]


def test_written_objects_are_read_back():
    spec = InstanceSpec(shard_id="a", config="web", hash_range=HashRange(start=0, end=5), drain=True)
    assert written(spec) == {"shardId": "a", "config": "web", "hashRange": {"start": 0, "end": 5}, "drain": True}
    found, status = read_instance({"spec": written(spec), "status": {"phase": "Running", "load": 1}})
    assert found == spec
    assert (status.phase, status.load) == ("Running", 1.0)


def test_every_field_of_a_shard_config_is_described() -> None:
    def without(schema: dict[str, Any], path: str = "") -> list[str]:
        found = []
        for name, field in ((schema.get("items") or schema).get("properties") or {}).items():
            own = f"{path}.{name}".removeprefix(".")
            if "description" not in field:
                found.append(own)
            if "elector" not in name and name not in ("requests", "limits"):  # their parts are those of Kubernetes
                found += without(field, own)
        return found

    (config,) = (each for each in definitions() if each["spec"]["names"]["kind"] == "ShardConfig")
    spec = config["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert without(spec) == ["resources.requests", "resources.limits"]
    target = spec["properties"]["targets"]["items"]["properties"]
    assert target["selector"]["description"] == "Only objects with these labels."
