"""Sentinels, routes, policies and keys as Kubernetes objects, and what is reported of a sentinel."""

from __future__ import annotations

import base64
from pathlib import Path

import orjson
import pytest
from rendered_states import OWNER, unused_fields

from shoal.errors import Invalid
from shoal.krane import labels
from shoal.krane.deployments.rendering import FIRST, Rendering
from shoal.krane.sentinels import custom
from shoal.krane.sentinels.images import GatewaySettings, pulls_nothing
from shoal.krane.sentinels.leftovers import leftovers
from shoal.krane.sentinels.render import check, render, render_candidate
from shoal.krane.sentinels.reports import (
    entries_of,
    node_place,
    owned_stats,
    running_image,
    sentinel_report,
    stats_key,
    verdicts,
)
from shoal.kube.labels import parse as parse_selector
from shoal.wire.fleet.v1 import cluster_pb as pb

NOT_FOR_KUBERNETES = {"SealedSecret.secret", "SealedSecret.version", "SealedSecret.variables"}


def state(**fields):
    given = {
        "sentinel": "snt_1", "workspace": "ws_1", "project": "prj_1", "environment": "env_1", "name": "sentinel-eu-x",
        "image": "shoal/sentinel:1", "replicas": 2, "region": "eu", "shared": False,
        "resources": pb.Resources(cpu_millicores=1000, memory_mib=512, ephemeral_mib=64),
        "peers": [pb.Peer(region="us", addresses=["192.0.2.1:8040"], distance=3, healthy=True)],
        "service": "NodePort", "entry_authority": b"authority",
        "entry": pb.SealedSecret(secret="gwc_1", version=1, wrapped_key=b"w", ciphertext=b"c", variables=["tls.key"]),
    }  # fmt: skip
    return pb.SentinelState(**{**given, **fields})


ENTRY = {"tls.crt": "certificate", "tls.key": "key"}


def keys_state(*keys):
    return pb.CustomState(
        kind="SentinelKeys", environment="env_1", workspace="ws_1", spec=orjson.dumps({"keys": list(keys)})
    )


def rendered(given, entry=None, *, labelled=True, **settings):
    return render(given, OWNER, GatewaySettings(image=given.image, **settings), entry, labelled=labelled)


def test_every_field_of_a_sentinel_changes_what_is_rendered():
    def opened(each):  # what comes out of it depends on what is in it
        return {"tls.crt": each.entry.ciphertext.hex(), "tls.key": each.entry.wrapped_key.hex()}

    def made(each):
        beside = render_candidate(each, each.candidate, OWNER, GatewaySettings(image=each.candidate.image))
        return rendered(each, opened(each)), beside

    beside = pb.SentinelCandidate(
        revision=3, image="shoal/sentinel:2", replicas=1, covers=True, resources=pb.Resources(
            cpu_millicores=500, memory_mib=128, ephemeral_mib=8),
    )  # fmt: skip
    assert unused_fields([state(candidate=beside)], made) == NOT_FOR_KUBERNETES


def test_a_candidate_is_led_to_as_the_gateway_itself_and_chosen_apart():
    given = state(candidate=pb.SentinelCandidate(revision=3, image="shoal/sentinel:2", replicas=1))
    (service, budget), root = rendered(given).after, rendered(given).root
    beside = render_candidate(given, given.candidate, OWNER, GatewaySettings(image="shoal/sentinel:2"))
    pod = beside["spec"]["template"]["metadata"]["labels"]
    for selector in (service["spec"]["selector"], budget["spec"]["selector"]["matchLabels"]):
        assert selector.items() <= pod.items()
    assert beside["spec"]["selector"]["matchLabels"].items() <= pod.items()
    own = root["spec"]["template"]["metadata"]["labels"]
    assert not beside["spec"]["selector"]["matchLabels"].items() <= own.items(), "it has no pods of the gateway itself"
    assert beside["metadata"]["name"] == "sentinel-eu-x-3"


def test_every_field_of_a_custom_object_changes_what_is_rendered():
    sealed = pb.SealedSecret(secret="sec_1", version=1, wrapped_key=b"w", ciphertext=b"c", variables=["TLS_KEY"])
    given = pb.CustomState(
        kind="SentinelRoute", workspace="ws_1", environment="env_1", name="r", spec=b"{}", tls=sealed, rollout=b"{}"
    )

    def made(each):
        copy = pb.CustomState.from_binary(each.to_binary())
        copy.spec = orjson.dumps({"length": len(each.spec)})
        copy.rollout = orjson.dumps({"length": len(each.rollout)})
        opened = {"TLS_CRT": each.tls.ciphertext.hex(), "TLS_KEY": each.tls.wrapped_key.hex()}
        secret = custom.render_certificate("route/rt_1", copy, OWNER, opened)
        return secret, custom.render_custom("route/rt_1", copy, OWNER)

    assert unused_fields([given], made) == {"kind", *NOT_FOR_KUBERNETES}


def test_what_is_watched_is_what_is_rendered():
    made = rendered(state(), ENTRY)
    watched = parse_selector(labels.selector(OWNER, "sentinel"))
    for obj in (*made.before, made.root, *made.after):
        assert watched.matches(obj["metadata"]["labels"]), obj["kind"]
        assert labels.key_of(obj) == "sentinel/snt_1"
    assert watched.matches(made.root["spec"]["template"]["metadata"]["labels"])


def test_a_sentinel_is_as_the_seed_has_it():
    made = rendered(state(service=""))
    spec = made.root["spec"]
    pod = spec["template"]["spec"]
    assert made.root["metadata"]["namespace"] == "sentinel"
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert pod["tolerations"] == [
        {"key": "node-class", "operator": "Equal", "value": "sentinel", "effect": "NoSchedule"}
    ]
    assert "topology.kubernetes.io/zone" in [each["topologyKey"] for each in pod["topologySpreadConstraints"]]
    container = pod["containers"][0]
    assert [each["containerPort"] for each in container["ports"]] == [8040, 8041, 8042, 8043]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": 8041, "scheme": "HTTP"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8041, "scheme": "HTTP"}
    assert container["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "64Mi"}
    service, budget = made.after
    assert service["spec"]["ports"][0]["port"] == 8040 and service["spec"]["type"] == "ClusterIP"
    assert budget["spec"]["maxUnavailable"] == 1 and budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_further_variables_are_given_to_the_gateway_and_none_by_default():
    def env(**more):
        root = rendered(state(), env=more).root
        return {each["name"]: each.get("value") for each in root["spec"]["template"]["spec"]["containers"][0]["env"]}

    assert env(SHOAL_SENTINEL_TRACES_URL="http://c:4318")["SHOAL_SENTINEL_TRACES_URL"] == "http://c:4318"
    assert not any("TRACES" in name for name in env())
    assert rendered(state()).root == rendered(state(), env={}).root


def test_peers_stand_in_a_config_map():
    peers = rendered(state()).before[1]
    assert peers["metadata"]["name"] == "peers-sentinel-eu-x"
    assert orjson.loads(peers["data"]["peers.json"]) == [
        {"region": "us", "addresses": ["192.0.2.1:8040"], "distance": 3, "healthy": True}
    ]


def test_the_certificate_between_regions_stands_in_a_secret_and_its_coming_changes_no_pod():
    before, after = rendered(state()), rendered(state(), ENTRY)
    assert before.root == after.root
    assert [obj["kind"] for obj in before.before] == ["ServiceAccount", "ConfigMap"]
    secret = after.before[2]
    assert (secret["metadata"]["name"], secret["type"]) == ("entry-sentinel-eu-x", "kubernetes.io/tls")
    content = {name: base64.b64decode(text) for name, text in secret["data"].items()}
    assert content == {"tls.crt": b"certificate", "tls.key": b"key", "ca.crt": b"authority"}
    known = {each["name"]: each.get("value") for each in after.root["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert known["SHOAL_SENTINEL_ENTRY_SECRET"] == "entry-sentinel-eu-x"
    assert known["SHOAL_SENTINEL_ENTRY_PORT"] == "8043"


def test_a_shared_sentinel_belongs_to_no_environment():
    made = rendered(state(environment="", project="", shared=True))
    known = {each["name"]: each.get("value") for each in made.root["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert known["SHOAL_SENTINEL_SHARED"] == "true" and "SHOAL_SENTINEL_ENVIRONMENT" not in known
    assert "shoal.dev/environment" not in made.root["metadata"]["labels"]


@pytest.mark.parametrize("fields", [{"sentinel": ""}, {"name": "A"}, {"environment": "a b"}])
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


def test_a_route_with_a_certificate_names_the_secret_that_is_made_of_it():
    spec = {"environment": "env_1", "host": "shop.example", "tls": {"secret": "what people call it"}}
    given = pb.CustomState(environment="env_1", name="shop-x", spec=orjson.dumps(spec), tls=pb.SealedSecret())
    made = custom.render_custom("route/rt_1", given, OWNER)
    secret = custom.render_certificate("route/rt_1", given, OWNER, {"TLS_CRT": "crt", "TLS_KEY": "key"})
    assert made["spec"]["tls"] == {"secret": "tls-shop-x"} == {"secret": secret["metadata"]["name"]}
    assert secret["type"] == "kubernetes.io/tls" and labels.key_of(secret) == "route/rt_1"
    assert secret["metadata"]["labels"]["shoal.dev/environment"] == "env_1"
    assert {name: base64.b64decode(text) for name, text in secret["data"].items()} == {
        "tls.crt": b"crt",
        "tls.key": b"key",
    }
    with pytest.raises(Invalid, match="TLS_KEY"):
        custom.render_certificate("route/rt_1", given, OWNER, {"TLS_CRT": "crt"})


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
def test_until_everything_is_rolled_out_no_image_runs(status):
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
    assert sentinel_report(given, (), ()).health == health


def test_the_address_is_that_of_the_service():
    service = {"spec": {"clusterIP": "10.96.0.9"}}
    assert sentinel_report(deployment(), (service,), ()).address == "10.96.0.9:8040"
    outside = {**service, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}}
    assert sentinel_report(deployment(), (outside,), ()).address == "192.0.2.9:8040", "of an earlier release"
    assert sentinel_report(deployment(), (), ()).address == ""


def test_users_reach_a_gateway_at_the_usual_ports_where_it_is_reached_from_outside():
    nodes = [node("a", InternalIP="10.0.0.1"), node("b", ExternalIP="192.0.2.2"), node("c", ready="False")]

    def address(given):
        return sentinel_report(deployment(), (given,), nodes).address

    assert address(service("LoadBalancer", loadBalancer={"ingress": [{"ip": "192.0.2.9"}]})) == "192.0.2.9:80"
    named = service("LoadBalancer", loadBalancer={"ingress": [{"hostname": "lb.example.com"}]})
    assert address(named) == "lb.example.com:80"
    assert address(service("LoadBalancer")) == "10.96.0.9:8040", "until it has one"
    assert address(service("NodePort", node_port=30043)) == "10.0.0.1:30080"
    assert address(service("NodePort")) == "10.96.0.9:8040"
    assert address(service("ClusterIP")) == "10.96.0.9:8040"


def test_the_service_leads_from_the_usual_ports_to_one_that_needs_no_rights():
    found = {each["name"]: (each["port"], each["targetPort"]) for each in rendered(state()).after[0]["spec"]["ports"]}
    assert found == {"http": (8040, 8040), "entry": (8043, 8043), "web": (80, 8040), "web-tls": (443, 8040)}


def test_a_gateway_runs_the_chosen_image_with_as_few_rights_as_possible():
    made = rendered(state(), pull_secret="hub", rendering=Rendering(2, non_root=True)).root["spec"]["template"]["spec"]
    (container,) = made["containers"]
    assert (container["image"], container["args"]) == ("shoal/sentinel:1", ["sentinel", "start"])
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert made["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}, "runAsNonRoot": True}
    assert made["imagePullSecrets"] == [{"name": "hub"}]
    plain = rendered(state()).root["spec"]["template"]["spec"]
    assert "imagePullSecrets" not in plain and "runAsNonRoot" not in plain["securityContext"]


RECORDED = {
    name: root
    for line in (Path(__file__).parent / "rendered_version_1.jsonl").read_bytes().splitlines()
    for name, root in [orjson.loads(line)]
}


@pytest.mark.parametrize(
    ("name", "fields", "settings"),
    [("own", {}, {}), ("traced", {}, {"env": {"SHOAL_SENTINEL_TRACES_URL": "http://x:1"}}),
     ("shared", {"environment": "", "project": "", "shared": True}, {})],
)  # fmt: skip
def test_the_first_rules_give_what_releases_before_the_second_ones_wrote(name, fields, settings):
    """The file was written by the code of before there were others."""
    assert rendered(state(**fields), rendering=FIRST, pull_secret="hub", **settings).root == RECORDED[name]


@pytest.mark.parametrize(
    ("versions", "expected"),
    [(["process://1"], True), (["process://1", "simulated://1"], True), (["process://1", "containerd://1.7"], False),
     ([], False), ([""], False)],
)  # fmt: skip
def test_only_nodes_that_pull_nothing_take_the_image_from_their_table(versions, expected):
    nodes = [{"status": {"nodeInfo": {"containerRuntimeVersion": version}}} for version in versions]
    assert pulls_nothing(nodes) is expected


def service(kind, *, node_port=0, **status):
    ports = [
        {"name": "http", "port": 8040},
        {"name": "entry", "port": 8043, "nodePort": node_port},
        {"name": "web", "port": 80, "nodePort": 30080 if node_port else 0},
    ]
    return {"spec": {"type": kind, "clusterIP": "10.96.0.9", "ports": ports}, "status": status}


def node(name, *, ready="True", **addresses):
    return node_place(
        {
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"a": "b"}},
            "status": {
                "conditions": [{"type": "Ready", "status": ready}],
                "addresses": [{"type": kind, "address": address} for kind, address in addresses.items()],
            },
        }
    )


def test_other_regions_come_in_as_the_kind_of_the_service_says():
    nodes = [
        node("a", InternalIP="10.0.0.1"),
        node("b", InternalIP="10.0.0.2", ExternalIP="192.0.2.2"),
        node("c", InternalIP="10.0.0.3", ready="False"),
    ]
    balanced = service("LoadBalancer", loadBalancer={"ingress": [{"ip": "192.0.2.9"}, {"ip": "2001:db8::9"}]})

    def entries(given):
        return sentinel_report(deployment(), (given,), nodes).entries

    assert entries(service("ClusterIP")) == ["10.96.0.9:8043"]
    assert entries(service("NodePort", node_port=31000)) == ["10.0.0.1:31000", "192.0.2.2:31000"]
    assert entries(service("NodePort")) == []
    assert entries(balanced) == ["192.0.2.9:8043", "[2001:db8::9]:8043"]
    assert entries(service("LoadBalancer")) == []  # it has none yet


def test_verdicts_are_of_the_newest_version_only():
    entries = [
        {"name": "sentinel-b", "accepted": False, "generation": 2, "message": "Envoy refuses it: no"},
        {"name": "sentinel-a", "accepted": True, "generation": 2},
        {"name": "sentinel-c", "accepted": True, "generation": 1},
    ]
    about = {"generation": 2, "annotations": {labels.VERSION: "main:3:17"}}
    found = verdicts({"metadata": about, "status": {"gateways": entries}})
    assert {(one.version.incarnation, one.version.number) for one in found} == {(3, 17)}
    assert [(one.sentinel, one.accepted, one.message) for one in found] == [
        ("sentinel-a", True, ""),
        ("sentinel-b", False, "Envoy refuses it: no"),
    ]
    assert verdicts({"metadata": {"generation": 1}}) == []


def counters(count):
    return {"codes": [0, count, 0, 0, 0], "latency": [0] * 14}


def entry_of(at, deployments):
    return {"data": {"sentinel-a": orjson.dumps({"v": 2, "at": at, "deployments": deployments}).decode()}}


def test_counters_are_reported_until_their_entries_are_removed():
    made = entry_of(1, {"dep_1": counters(5)})
    made["data"] |= {"sentinel-empty": "{}", "sentinel-bad": "no"}
    found = owned_stats(entries_of([made]))
    assert orjson.loads(found) == {"gateways": {"sentinel-a": {"v": 2, "at": 1, "deployments": {"dep_1": counters(5)}}}}
    assert owned_stats(entries_of([])) == b""


def test_more_counters_than_there_is_room_for_are_those_of_the_busiest_and_of_rollouts():
    many = {f"dep_{number}": counters(number) for number in range(5000)}
    judged = {"dep_0", "dep_1", "dep_4999", "elsewhere"}
    found = owned_stats(entries_of([entry_of(1, many)]), judged)
    kept = orjson.loads(found)["gateways"]["sentinel-a"]["deployments"]
    assert len(found) <= 60_000 and {"dep_0", "dep_1", "dep_4998", "dep_4999"} <= kept.keys() and "dep_2" not in kept
    every = owned_stats(entries_of([entry_of(1, {f"dep_{number}": counters(number) for number in range(1500)})]), many)
    assert len(orjson.loads(every)["gateways"]["sentinel-a"]["deployments"]) == 1500 and 60_000 < len(every)


def test_counters_belong_to_the_sentinel_of_this_owner_that_their_labels_name():
    labelled = labels.labels_of(OWNER, "sentinel", "snt_1")
    mine = {"metadata": {"labels": {**labelled, labels.COMPONENT: "sentinel-stats"}}}
    del mine["metadata"]["labels"][labels.MANAGED_BY]
    assert stats_key(OWNER, mine) == "sentinel/snt_1"
    other = {"metadata": {"labels": {**mine["metadata"]["labels"], labels.SHARD: "b"}}}
    assert stats_key(OWNER, other) is None


def test_what_pods_that_are_gone_have_left_is_found_and_nothing_else():
    route = {
        "metadata": {"name": "shop"},
        "status": {"gateways": [{"name": "by-hand"}, {"name": "sentinel-eu-1"}, {"name": "sentinel-eu-0"}]},
    }
    stats = {"metadata": {"name": "stats-sentinel-eu"}, "data": {"sentinel-eu-0": "{}", "sentinel-eu-1": "{}"}}
    pods = {"sentinel-eu-1", "sentinel-us-0"}
    found = leftovers({custom.TYPES["route"]: [route]}, [stats], pods, lambda pod, text: text == "{}")
    assert [(one.kind.kind, one.name, one.pod) for one in found] == [
        ("SentinelRoute", "shop", "sentinel-eu-0"),
        ("ConfigMap", "stats-sentinel-eu", "sentinel-eu-0"),
    ]
    assert found[0].patch == (
        {"op": "test", "path": "/status/gateways/2/name", "value": "sentinel-eu-0"},
        {"op": "remove", "path": "/status/gateways/2"},
    )
    assert leftovers({}, [stats], {"sentinel-eu-0", "sentinel-eu-1"}, lambda pod, text: True) == []
    assert leftovers({}, [stats], pods, lambda pod, text: False) == [], "the control plane does not know them yet"


def test_the_service_leads_to_labelled_pods_once_all_pods_have_the_label():
    made = rendered(state())
    (service, budget), template = made.after, made.root["spec"]["template"]["metadata"]["labels"]
    selector = service["spec"]["selector"]
    assert selector[labels.SERVING] == template[labels.SERVING] == "true"
    assert labels.SERVING not in made.root["spec"]["selector"]["matchLabels"], (
        "it cannot change, and it can be taken off"
    )
    assert labels.SERVING not in budget["spec"]["selector"]["matchLabels"]
    before = rendered(state(), labelled=False)
    assert labels.SERVING not in before.after[0]["spec"]["selector"] and before.root == made.root


def test_what_a_route_does_for_candidates_is_beside_its_spec():
    given = pb.CustomState(kind="SentinelRoute", environment="env_1", name="r", spec=b"{}")
    assert "rollout" not in custom.render_custom("route/rt_1", given, OWNER)
    given.rollout = b'{"previews": []}'
    made = custom.render_custom("route/rt_1", given, OWNER)
    assert (made["spec"], made["rollout"]) == ({}, {"previews": []})
    for bad in (b"[]", b"{"):
        given.rollout = bad
        with pytest.raises(Invalid, match="rollout"):
            custom.render_custom("route/rt_1", given, OWNER)
