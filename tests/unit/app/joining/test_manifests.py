"""The manifests of a cluster's agents."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from shoal.app.joining.manifests import (
    EDGE,
    KRANE,
    NAMESPACE,
    SECRET,
    SHARD_MANAGER,
    AgentPlan,
    ProxyVariables,
    manifests,
    rights,
)
from shoal.errors import ConfigError
from shoal.krane import rbac as krane
from shoal.kube.podsecurity.evaluate import findings, in_detail
from shoal.kube.podsecurity.policy import RESTRICTED, Standard
from shoal.navigator.edge import rbac as edge
from shoal.sharding.manifests import manifests as shard_manifests
from shoal.sharding.rbac import TargetKind

IMAGE = "registry.example/shoal:1.2.3"
JOIN: dict[str, Any] = {
    "url": "https://fleet.example:7400", "token": "secret", "cluster": "eu-1", "region": "eu", "shard": "default",
    "ca": "-----BEGIN CERTIFICATE-----",
}  # fmt: skip
EDGE_JOIN = {**JOIN, "url": "https://fleet.example:7410"}


def a_plan(**changed: Any) -> AgentPlan:
    return AgentPlan(**{"image": IMAGE, "krane": JOIN, "edge": EDGE_JOIN, **changed})


def find(objects: list[Any], kind: str, name: str, namespace: str = NAMESPACE) -> Any:
    return next(
        each
        for each in objects
        if (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace", namespace))
        == (kind, name, namespace)
    )


def test_without_an_image_the_error_says_that_there_is_no_default() -> None:
    with pytest.raises(ConfigError, match=r"image is not set: .*--image REGISTRY/NAME:TAG"):
        a_plan(image="")


@pytest.mark.parametrize("name", [KRANE, EDGE, SHARD_MANAGER])
def test_pods_pass_the_restricted_level_and_run_as_a_numeric_user_with_a_read_only_root(name: str) -> None:
    template = find(manifests(a_plan()), "Deployment", name)["spec"]["template"]
    assert in_detail(findings(Standard(RESTRICTED), template["metadata"], template["spec"])) == ""
    assert template["spec"]["securityContext"]["runAsUser"] == 65532
    (container,) = template["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["image"] == IMAGE
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_join_files_are_in_one_secret_and_each_agent_mounts_its_own() -> None:
    made = manifests(a_plan())
    files = find(made, "Secret", SECRET)["stringData"]
    assert {name: yaml.safe_load(text) for name, text in files.items()} == {"krane.yaml": JOIN, "edge.yaml": EDGE_JOIN}
    for name, key in ((KRANE, "krane.yaml"), (EDGE, "edge.yaml")):
        pod = find(made, "Deployment", name)["spec"]["template"]["spec"]
        volume = next(each for each in pod["volumes"] if "secret" in each)
        assert [item["key"] for item in volume["secret"]["items"]] == [key]
        assert f"/etc/shoal/{key}" in pod["containers"][0]["args"]


def test_accounts_of_deployments_have_the_roles_of_the_manifests_of_each_agent() -> None:
    made = rights(a_plan())
    for account, role, alone in (
        (KRANE, "shoal-krane", "krane"),
        (EDGE, "shoal-navigator-edge", "navigator-edge"),
        (SHARD_MANAGER, "shard-manager", "shard-manager"),
    ):
        subject, *others = find(made, "ClusterRoleBinding", role)["subjects"]
        assert [each["name"] for each in others] == [alone]
        assert (subject["name"], subject["namespace"]) == (account, NAMESPACE)
        find(made, "ServiceAccount", account)


def test_the_agent_may_change_the_deployments_of_agents_and_no_other_by_that_role() -> None:
    rule, reading = find(rights(a_plan()), "Role", "shoal-krane-upgrade")["rules"]
    assert rule["resourceNames"] == [KRANE, EDGE, SHARD_MANAGER]
    assert rule["verbs"] == ["get", "patch"]
    assert (reading["resources"], reading["verbs"]) == (["pods"], ["list"])


def test_kinds_that_are_sharded_later_take_no_rights_from_a_manager_that_joined() -> None:
    later = shard_manifests([TargetKind("example.com", "websites")], namespace=NAMESPACE)
    for made in (rights(a_plan()), later):
        for binding in (each for each in made if each["kind"].endswith("Binding")):
            if binding["metadata"]["name"].startswith("shard-manager"):
                assert SHARD_MANAGER in {each["name"] for each in binding["subjects"]}
        policy = find(made, "NetworkPolicy", "shard-workers", "default")
        (allowed,) = policy["spec"]["ingress"][0]["from"]
        (names,) = allowed["podSelector"]["matchExpressions"]
        assert SHARD_MANAGER in names["values"]


def test_rights_that_are_applied_for_an_agent_by_itself_take_none_from_one_that_joined() -> None:
    for namespaces in ((), ("a",)):
        later = [*krane.manifests(), *edge.manifests(namespaces=namespaces)]
        joined = {_place(each) for each in rights(a_plan(namespaces=namespaces)) if each["kind"].endswith("Binding")}
        shared = [each for each in later if each["kind"].endswith("Binding") and _place(each) in joined]
        assert len(shared) >= 3
        for binding in shared:
            assert {each["name"] for each in binding["subjects"]} & {KRANE, EDGE}, binding
            assert {each["namespace"] for each in binding["subjects"]} == {NAMESPACE}


def test_an_agent_in_another_namespace_shares_its_rights_with_no_account_there() -> None:
    made = [*krane.manifests(namespace="mine"), *edge.manifests(edge_namespace="mine")]
    names = {subject["name"] for each in made for subject in each.get("subjects") or ()}
    assert names == {"krane", "navigator-edge"}


def _place(obj: dict[str, Any]) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def test_with_namespaces_the_agent_writes_workloads_and_reads_secrets_in_these_alone() -> None:
    made = rights(a_plan(namespaces=("a", "b")))
    (cluster,) = [
        each["rules"] for each in made if each["kind"] == "ClusterRole" and each["metadata"]["name"] == "shoal-krane"
    ]
    unnamed = {
        (resource, verb)
        for rule in cluster
        if "resourceNames" not in rule
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert unnamed == {
        ("nodes", "list"), ("nodes", "watch"), ("nodes", "get"),
        *(("endpointslices", verb) for verb in ("get", "list", "watch")),
    }  # fmt: skip
    roles = {each["metadata"]["namespace"] for each in made if each["kind"] == "Role"}
    assert roles == {"a", "b", "sentinel", NAMESPACE}
    assert SHARD_MANAGER not in a_plan(namespaces=("a",)).deployments
    assert not [each for each in made if each["kind"] == "ClusterRole" and each["metadata"]["name"] == "shard-manager"]


def test_agents_with_namespaces_are_told_these() -> None:
    made = manifests(a_plan(namespaces=("a", "b")))
    for name, variable in ((KRANE, "SHOAL_KRANE_NAMESPACES"), (EDGE, "SHOAL_EDGE_NAMESPACES__INCLUDE")):
        assert variables(find(made, "Deployment", name))[variable] == "a,b"


def test_a_proxy_is_used_for_what_is_outside_the_cluster() -> None:
    proxy = ProxyVariables(https_proxy="http://proxy.corp:3128", no_proxy="10.0.0.0/8")
    made = manifests(a_plan(proxy=proxy))
    found = variables(find(made, "Deployment", KRANE))
    assert found["HTTPS_PROXY"] == "http://proxy.corp:3128"
    assert {"$(KUBERNETES_SERVICE_HOST)", "10.0.0.0/8"} <= set(found["NO_PROXY"].split(","))
    assert {"protocol": "TCP", "port": 3128} in find(made, "NetworkPolicy", KRANE)["spec"]["egress"][1]["ports"]


def test_network_policies_let_agents_reach_dns_the_api_server_and_what_they_dial() -> None:
    made = manifests(a_plan())
    ports = {
        name: [each["port"] for each in find(made, "NetworkPolicy", name)["spec"]["egress"][1]["ports"]]
        for name in (KRANE, EDGE, SHARD_MANAGER)
    }
    assert ports == {KRANE: [443, 6443, 7400], EDGE: [443, 6443, 7410], SHARD_MANAGER: [443, 6443]}


def test_without_a_navigator_there_is_no_edge() -> None:
    made = manifests(a_plan(edge=None))
    assert {each["metadata"]["name"] for each in made if each["kind"] == "Deployment"} == {KRANE, SHARD_MANAGER}
    assert list(find(made, "Secret", SECRET)["stringData"]) == ["krane.yaml"]


def variables(deployment: Any) -> dict[str, str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}
