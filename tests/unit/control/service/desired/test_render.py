"""Rows to messages: no field of a message may be forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.control.domain.kinds.app import (
    Adoption,
    AppSpec,
    Autoscaling,
    HealthCheck,
    Overrides,
    PlacementRules,
    RegionSpec,
    Resources,
    Security,
    Toleration,
)
from shoal.control.domain.plan import recorded_template, region_state
from shoal.control.service.desired import render
from shoal.control.service.desired.model import DesiredRow
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb

SPEC = AppSpec(
    image="nginx:1", command=("run",), args=("-v",), env={"A": "1", "B": "2"}, secrets=("db",),
    resources=Resources(250, 512, 64), port=8080, protocol="h2c",
    healthcheck=HealthCheck(
        kind="http", path="/up", command=("check",), port=81, initial_delay=1, period=2, timeout=3, failures=4
    ),
    shutdown_signal="SIGINT", termination_seconds=7,
    git={"sha": "abc", "branch": "main", "repository": "r", "message": "m"}, drift="report",
    node_selector={"disk": "fast"},
    pod_labels={"app": "web"},
    security=Security(True, 1000, ("CHOWN",), True, "Unconfined"), image_pull_secrets=("hub",),
    placement=PlacementRules(tolerations=(Toleration("k", "Equal", "v", "NoSchedule"),)),
    topology=(
        RegionSpec("eu", 3, Autoscaling(2, 9, 70, 60), Overrides({"B": "3"}, Resources(memory_mib=1024), "nginx:eu")),
    ),
)  # fmt: skip


ADOPTION = Adoption(
    cluster="eu-1", namespace="ns", deployment="web", uid="u-1", selector={"app": "web"}, autoscaler="web-hpa"
)
JOB = {
    "id": "check-smoke-abc", "check": "smoke", "image": "shop/smoke:1", "command": ["smoke"], "args": ["--all"],
    "env": {"A": "1"}, "resources": {"cpu": "100m", "memory": "1Mi", "ephemeralStorage": "1Mi"}, "timeoutSeconds": 60,
}  # fmt: skip


def a_deployment(cluster: str = "cls_1") -> pb.DeploymentState:
    state = region_state(SPEC, SPEC.topology[0])
    adopted = {**ADOPTION.as_json(), "clusterId": "cls_1"}
    template = recorded_template(SPEC) | {"adopted": {"eu": adopted}}
    row = render.DeploymentRow(
        id="dep_1", workspace="ws_1", project="prj_1", environment="env_1", app="app_1", namespace="ns", name="web-x",
        app_name="web", project_name="shop", environment_name="live", revision=4, image=SPEC.image, template=template,
        git=template["git"], desired_state="running", drift=SPEC.drift,
    )  # fmt: skip
    where = render.TopologyRow(
        region="eu", replicas=state.replicas, autoscaling=state.autoscaling, overrides=state.overrides or {},
        desired_status=state.desired_status, taken_from="b", check_jobs=[JOB], cluster=cluster,
    )  # fmt: skip
    secret = render.SecretRow(id="sec_1", revision=2, wrapped_key=b"w", ciphertext=b"c", variables=["PASSWORD"])
    return render.deployment_state(row, where, [secret], [secret])


def a_sentinel() -> pb.SentinelState:
    peers = [
        render.PeerRow(region="us", address="2:1", distance=5, healthy=False),
        render.PeerRow(region="us", address="1:1", distance=3, healthy=True),
    ]
    return render.sentinel_state(
        render.SentinelRow(
            id="sen_1", workspace="ws_1", project="prj_1", environment="env_1", name="s", image="i", replicas=2,
            resources={"cpu": "1", "memory": "1Gi", "ephemeralStorage": "1Mi"}, region="eu", peers=peers,
            service="NodePort",
            candidate=render.GatewayCandidateRow(
                revision=3, image="j", resources={"cpu": "2", "memory": "1Gi", "ephemeralStorage": "1Mi"}, replicas=1,
                covers=True,
            ),
        ),
        render.EntryRow(
            render.SecretRow(id="gwc_1", revision=1, wrapped_key=b"w", ciphertext=b"c", variables=["tls.key"]), b"ca"
        ),
    )  # fmt: skip


def empty_fields(message: Any, path: str = "") -> list[str]:
    """Fields that have no value, at every depth."""
    found: list[str] = []
    for field in message.desc().fields:
        value, name = getattr(message, field.name), f"{path}{field.name}"
        if not value:
            found.append(name)
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "to_binary"):
                found += empty_fields(one, f"{name}.")
    return found


def test_every_field_of_a_deployment_is_filled_from_the_spec() -> None:
    assert empty_fields(a_deployment()) == []


def test_only_the_cluster_where_a_deployment_runs_is_told_to_adopt_it() -> None:
    assert a_deployment().adopted == pb.Adopted(
        deployment="web", uid="u-1", selector={"app": "web"}, autoscaler="web-hpa"
    )
    assert a_deployment("cls_2").adopted is None, "moved there, it is a Deployment of its own"


def test_every_field_of_a_sentinel_and_of_custom_states_is_filled() -> None:
    assert empty_fields(a_sentinel()) == ["shared"]
    row = render.CustomRow(
        kind="route", workspace="w", environment="e", name="r", spec={"b": 1, "a": 2}, rollout={"previews": []}
    )
    secret = render.SecretRow(id="sec_1", revision=2, wrapped_key=b"w", ciphertext=b"c", variables=["TLS_KEY"])
    state = render.custom_state(row, "r-1", secret)
    assert empty_fields(state) == []
    assert (state.kind, state.name, state.spec) == ("SentinelRoute", "r-1", b'{"a":2,"b":1}')


def test_a_region_overrides_what_it_says_and_keeps_the_rest() -> None:
    state = a_deployment()
    assert (state.image, dict(state.env)) == ("nginx:eu", {"A": "1", "B": "3"})
    assert state.resources is not None
    assert (state.resources.cpu_millicores, state.resources.memory_mib, state.resources.ephemeral_mib) == (
        250,
        1024,
        64,
    )


def test_peers_are_one_per_region_and_healthy_when_one_of_them_is() -> None:
    (peer,) = a_sentinel().peers
    assert (list(peer.addresses), peer.distance, peer.healthy) == (["1:1", "2:1"], 3, True)


@pytest.mark.parametrize("action", ["delete", "release"])
def test_a_tombstone_names_what_is_to_go(action: str) -> None:
    row = a_row(action)
    item = render.item(row, Version("main", 2, 9), None)
    assert item.action is not None
    assert (item.action.field, item.action.value.namespace, item.action.value.name) == (action, "ns", "web")
    assert (item.by_user, item.committed_ms, item.trace) == (True, 1, "t")
    assert item.version is not None and item.version.number == 9


def test_what_is_wanted_and_is_not_there_is_an_error_and_never_a_delete() -> None:
    with pytest.raises(ValueError, match="is desired"):
        render.item(a_row("apply"), Version("main", 2, 9), None)


def test_the_bytes_of_an_event_are_those_of_the_message() -> None:
    for padding in (0, 100, 20_000):
        item = render.item(a_row("delete", trace="x" * padding), Version("main", 2, 9), None)
        event = pb.WatchEvent.from_binary(render.item_event(item.to_binary()))
        assert event.event is not None and event.event.field == "item" and event.event.value == item


def a_row(action: str, trace: str = "t") -> DesiredRow:
    return DesiredRow(
        cluster_id="c", shard="s", key="deployment/dep_1", kind="deployment", object_id="dep_1", action=action,
        number=9, by_user=True, committed_at=1, trace=trace, correlation="c-1", namespace="ns", name="web", gone_at=0,
    )  # fmt: skip


def test_an_item_around_an_encoded_state_is_the_item_itself() -> None:
    row = DesiredRow(
        cluster_id="c", shard="s", key="deployment/dep_1", kind="deployment", object_id="dep_1", action="apply",
        number=7, by_user=True, committed_at=12345, trace="00-t", correlation="deploy-7", namespace="n", name="web",
        gone_at=0,
    )  # fmt: skip
    version = Version("main", 2, 7)
    state = pb.DeploymentState(deployment="dep_1", image="nginx:1" * 50, replicas=3)
    encoded = render.item_bytes(row, version, render.EncodedDeployment(state.to_binary()))
    decoded = pb.Item.from_binary(encoded)
    assert decoded.to_json() == render.item(row, version, state).to_json()
    assert decoded.correlation == "deploy-7"
