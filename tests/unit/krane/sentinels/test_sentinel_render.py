"""Sentinels, routes, policies and keys as Kubernetes objects, and what is reported of a sentinel."""

from __future__ import annotations

import base64

import orjson
import pytest
from rendered_states import OWNER, unused_fields

from shoal.errors import Invalid
from shoal.krane import labels
from shoal.krane.sentinels import custom
from shoal.krane.sentinels.observe import running_image, sentinel_report
from shoal.krane.sentinels.render import NOT_FOR_KUBERNETES, check, render
from shoal.kube.labels import parse as parse_selector
from shoal.wire.fleet.v1 import cluster_pb as pb


def state(**fields):
    given = {
        "sentinel": "snt_1", "workspace": "ws_1", "project": "prj_1", "environment": "env_1", "name": "sentinel-eu-x",
        "image": "shoal/sentinel:1", "replicas": 2, "region": "eu", "shared": False,
        "resources": pb.Resources(cpu_millicores=1000, memory_mib=512, ephemeral_mib=64),
        "peers": [pb.Peer(region="us", addresses=["192.0.2.1:8040"], distance=3, healthy=True)],
    }  # fmt: skip
    return pb.SentinelState(**{**given, **fields})


def keys_state(*keys):
    return pb.CustomState(
        kind="SentinelKeys", environment="env_1", workspace="ws_1", spec=orjson.dumps({"keys": list(keys)})
    )


def test_u19_every_field_of_a_sentinel_changes_what_is_rendered():
    assert unused_fields([state()], lambda each: render(each, OWNER)) == NOT_FOR_KUBERNETES


def test_u19_every_field_of_a_custom_object_changes_what_is_rendered():
    given = pb.CustomState(kind="SentinelRoute", workspace="ws_1", environment="env_1", name="r", spec=b"{}")

    def made(each):
        copy = pb.CustomState.from_binary(each.to_binary())
        copy.spec = orjson.dumps({"length": len(each.spec)})
        return custom.render_custom("route/rt_1", copy, OWNER)

    assert unused_fields([given], made) == custom.NOT_FOR_KUBERNETES


def test_r1_what_is_watched_is_what_is_rendered():
    made = render(state(), OWNER)
    watched = parse_selector(labels.selector(OWNER, "sentinel"))
    for obj in (*made.before, made.root, *made.after):
        assert watched.matches(obj["metadata"]["labels"]), obj["kind"]
        assert labels.key_of(obj) == "sentinel/snt_1"
    assert watched.matches(made.root["spec"]["template"]["metadata"]["labels"])


def test_a_sentinel_is_as_the_seed_has_it():
    made = render(state(), OWNER)
    spec = made.root["spec"]
    pod = spec["template"]["spec"]
    assert made.root["metadata"]["namespace"] == "sentinel"
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert pod["tolerations"] == [
        {"key": "node-class", "operator": "Equal", "value": "sentinel", "effect": "NoSchedule"}
    ]
    assert "topology.kubernetes.io/zone" in [each["topologyKey"] for each in pod["topologySpreadConstraints"]]
    container = pod["containers"][0]
    assert [each["containerPort"] for each in container["ports"]] == [8040, 8041, 8042]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 8041, "scheme": "HTTP"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8041, "scheme": "HTTP"}
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "64Mi"}
    service, budget = made.after
    assert service["spec"]["ports"][0]["port"] == 8040 and service["spec"]["type"] == "ClusterIP"
    assert budget["spec"]["maxUnavailable"] == 1 and budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_peers_stand_in_a_config_map():
    peers = render(state(), OWNER).before[1]
    assert peers["metadata"]["name"] == "peers-sentinel-eu-x"
    assert orjson.loads(peers["data"]["peers.json"]) == [
        {"region": "us", "addresses": ["192.0.2.1:8040"], "distance": 3, "healthy": True}
    ]


def test_a_shared_sentinel_belongs_to_no_environment():
    made = render(state(environment="", project="", shared=True), OWNER)
    known = {each["name"]: each.get("value") for each in made.root["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert known["SHOAL_SENTINEL_SHARED"] == "true" and "SHOAL_SENTINEL_ENVIRONMENT" not in known
    assert "shoal.dev/environment" not in made.root["metadata"]["labels"]


@pytest.mark.parametrize("fields", [{"sentinel": ""}, {"name": "A"}, {"image": ""}, {"environment": "a b"}])
def test_a_sentinel_that_cannot_be_rendered_is_refused(fields):
    with pytest.raises(Invalid):
        check(state(**fields))


def test_a_route_is_applied_as_it_stands():
    spec = {"environment": "env_1", "host": "shop.example"}
    given = pb.CustomState(kind="SentinelRoute", environment="env_1", name="shop-x", spec=orjson.dumps(spec))
    made = custom.render_custom("route/rt_1", given, OWNER)
    assert (made["apiVersion"], made["kind"], made["spec"]) == ("sentinel.shoal.dev/v1", "SentinelRoute", spec)
    assert labels.key_of(made) == "route/rt_1"
    assert made["metadata"]["labels"]["shoal.dev/environment"] == "env_1"


def test_the_keys_of_an_environment_are_one_secret_with_digests():
    key = {
        "id": "key_1",
        "name": "ci",
        "digest": "ab12",
        "expiresAt": 5,
        "spec": {"permissions": ["read"], "identity": "bob"},
    }
    made = custom.render_custom("keys/env_1", keys_state(key), OWNER)
    assert (made["kind"], made["metadata"]["name"], made["metadata"]["namespace"]) == (
        "Secret",
        "keys-env-1",
        "sentinel",
    )
    assert made["metadata"]["labels"]["shoal.dev/environment"] == "env_1"
    entry = orjson.loads(base64.b64decode(made["data"]["key_1"]))
    assert (entry["digest"], entry["permissions"], entry["subject"], entry["expires"]) == ("ab12", ["read"], "bob", 5)


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("route/rt_1", pb.CustomState(name="r", spec=b"not json")),
        ("route/rt_1", pb.CustomState(name="r", spec=b"[]")),
        ("route/rt_1", pb.CustomState(name="", spec=b"{}")),
        ("policy/po_1", pb.CustomState(name="Not A Name", spec=b"{}")),
        ("keys/env_1", keys_state({"id": "key_1"})),
        ("keys/env_1", keys_state({"id": "a/b", "digest": "x"})),
    ],
)
def test_what_cannot_be_made_an_object_is_refused(key, given):
    with pytest.raises(Invalid):
        custom.render_custom(key, given, OWNER)


def deployment(*, replicas=2, generation=3, image="shoal/sentinel:2", **status):
    given = {
        "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas,
    }  # fmt: skip
    return {
        "metadata": {"generation": generation},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"image": image}]}}},
        "status": {**given, **status},
    }


def test_the_running_image_is_said_when_it_is_rolled_out():
    assert running_image(deployment()) == "shoal/sentinel:2"


@pytest.mark.parametrize(
    "status",
    [
        {"observedGeneration": 2},
        {"updatedReplicas": 1},
        {"availableReplicas": 1},
        {"unavailableReplicas": 1},
        {"replicas": 3},
    ],
)
def test_u29_until_everything_is_rolled_out_no_image_runs(status):
    given = deployment()
    assert running_image({**given, "status": {**given["status"], **status}}) == ""


@pytest.mark.parametrize(
    ("given", "health"),
    [
        (deployment(), pb.SentinelHealth.HEALTHY),
        (deployment(availableReplicas=1, observedGeneration=1), pb.SentinelHealth.HEALTHY),
        (deployment(availableReplicas=0), pb.SentinelHealth.UNHEALTHY),
        (deployment(replicas=0), pb.SentinelHealth.PAUSED),
    ],
)
def test_health_is_whether_it_serves(given, health):
    assert sentinel_report(given, ()).health == health


def test_the_address_is_that_of_the_service():
    service = {"spec": {"clusterIP": "10.96.0.9"}}
    assert sentinel_report(deployment(), (service,)).address == "10.96.0.9:8040"
    outside = {**service, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}
    assert sentinel_report(deployment(), (outside,)).address == "192.0.2.9:8040"
    assert sentinel_report(deployment(), ()).address == ""
