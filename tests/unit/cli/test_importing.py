"""An App for a Deployment that runs: what it can say is said, and the rest is named."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.adopting import ImportedApp
from shoal.cli.fleet.import_app import NotAdoptable, check_adoption
from shoal.cli.importing import ImportPlace, app_of
from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.app import read_app

PLACE = ImportPlace(project="demo", environment="production", region="eu")
Obj = dict[str, Any]


def a_deployment(**container: Any) -> Obj:
    made = {
        "name": "web", "image": "registry.example.com/shop/web:v1", "ports": [{"name": "http", "containerPort": 3000}],
    }  # fmt: skip
    labels = {"app": "web", "app.kubernetes.io/managed-by": "Helm"}
    return {
        "metadata": {"name": "web", "namespace": "shop", "labels": dict(labels)},
        "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [made | container]}},
        },
    }  # fmt: skip


def a_service(**spec: Any) -> Obj:
    ports = [{"name": "http", "port": 80, "targetPort": "http"}]
    return {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports} | spec}


def imported(deployment: Obj, *services: Obj, autoscalers: Any = ()) -> ImportedApp:
    made = app_of(deployment, PLACE, services=services or (a_service(),), autoscalers=autoscalers)
    errors: list[Any] = []
    read_app(Reader(made.document["spec"], "spec", errors))
    assert not errors, errors
    return made


def test_a_plain_deployment_with_its_service_becomes_an_app_whole() -> None:
    probe = {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5, "failureThreshold": 2}
    deployment = a_deployment(
        command=["web"], args=["--verbose"], env=[{"name": "MODE", "value": "live"}, {"name": "EMPTY"}],
        resources={"requests": {"cpu": "250m", "memory": "128Mi"}, "limits": {"cpu": "250m", "memory": "128Mi"}},
        readinessProbe=probe,
    )  # fmt: skip
    pod = deployment["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 60
    pod["nodeSelector"] = {"disk": "ssd"}
    pod["tolerations"] = [{"key": "team", "operator": "Equal", "value": "shop", "effect": "NoSchedule"}]
    made = imported(deployment)
    assert (made.obstacles, made.notes) == ([], [])
    assert made.document == {
        "apiVersion": "shoal.dev/v1", "kind": "App",
        "metadata": {"name": "web", "project": "demo", "environment": "production", "labels": {"app": "web"}},
        "spec": {
            "image": "registry.example.com/shop/web:v1", "command": ["web"], "args": ["--verbose"],
            "env": {"MODE": "live", "EMPTY": ""}, "resources": {"cpu": "250m", "memory": "128Mi"}, "port": 3000,
            "healthcheck": {"http": {"path": "/ready"}, "period": 5, "failures": 2}, "terminationSeconds": 60,
            "nodeSelector": {"disk": "ssd"},
            "placement": {
                "tolerations": [{"key": "team", "operator": "Equal", "value": "shop", "effect": "NoSchedule"}]
            },
            "topology": [{"region": "eu", "replicas": 3}],
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"container": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}}, "env A: a value from secretKeyRef s/k"),
        ({"container": {"envFrom": [{"configMapRef": {"name": "settings"}}]}}, "envFrom (configMapRef settings)"),
        ({"container": {"lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}}, "lifecycle"),
        ({"container": {"workingDir": "/srv"}}, "workingDir"),
        ({"container": {"securityContext": {"privileged": True}}}, "securityContext (privileged)"),
        ({"container": {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}}, "capabilities.add (NET_ADMIN)"),
        ({"container": {"resources": {"limits": {"nvidia.com/gpu": "1"}}}}, "nvidia.com/gpu"),
        ({"container": {"readinessProbe": {"httpGet": {"port": 3000, "scheme": "HTTPS"}}}}, "readinessProbe (scheme)"),
        ({"container": {"readinessProbe": {"tcpSocket": {"port": "nowhere"}}}}, "readinessProbe"),
        ({"pod": {"volumes": [{"name": "data", "emptyDir": {}}]}}, "spec.volumes (data)"),
        ({"pod": {"initContainers": [{"name": "migrate"}]}}, "initContainers"),
        ({"pod": {"hostNetwork": True}}, "hostNetwork"),
        ({"pod": {"affinity": {"podAntiAffinity": {}}}}, "affinity"),
        ({"pod": {"serviceAccountName": "robot"}}, "serviceAccountName is 'robot'"),
        ({"pod": {"securityContext": {"runAsUser": 0, "fsGroup": 5}}}, "securityContext (fsGroup, runAsUser)"),
        ({"service": {"ports": [{"port": 80, "targetPort": 3000}, {"port": 81, "targetPort": 3001}]}}, "2 ports"),
        ({"service": {"ports": [{"port": 80, "targetPort": "gone"}]}}, "'gone' is no port of the container"),
        ({"service": {"ports": [{"port": 53, "targetPort": 3000, "protocol": "UDP"}]}}, "is UDP"),
    ],
)  # fmt: skip
def test_what_an_app_cannot_say_is_named(change: Obj, named: str) -> None:
    deployment = a_deployment(**change.get("container", {}))
    deployment["spec"]["template"]["spec"] |= change.get("pod", {})
    made = imported(deployment, a_service(**change.get("service", {})))
    assert any(named in each for each in made.obstacles), made.obstacles


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"container": {"livenessProbe": {"tcpSocket": {"port": 3000}}}}, "livenessProbe"),
        ({"container": {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}}, "the limit 2 is left out"),
        ({"pod": {"imagePullSecrets": [{"name": "r"}]}}, "imagePullSecrets"),
        ({"service": {"type": "LoadBalancer"}}, "LoadBalancer"),
        ({"service": {"selector": {"app": "other"}}}, "no Service selects"),
    ],
)
def test_what_an_app_does_in_its_own_way_is_noted_and_stops_nothing(change: Obj, named: str) -> None:
    deployment = a_deployment(**change.get("container", {}))
    deployment["spec"]["template"]["spec"] |= change.get("pod", {})
    made = imported(deployment, a_service(**change.get("service", {})))
    assert not made.obstacles and any(named in each for each in made.notes), made.notes


def test_an_autoscaler_of_the_deployment_is_part_of_it() -> None:
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 70}}}]
    target = {"kind": "Deployment", "name": "web"}
    scaler: Obj = {"spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9, "metrics": metrics}}
    other = deepcopy(scaler)
    other["spec"]["scaleTargetRef"]["name"] = "other"
    made = imported(a_deployment(), autoscalers=[other, scaler])
    assert made.document["spec"]["topology"] == [{"region": "eu", "autoscaling": {"min": 2, "max": 9, "cpu": 70}}]
    metrics.append({"type": "Pods", "pods": {}})
    assert any("scales by Pods" in each for each in imported(a_deployment(), autoscalers=[scaler]).obstacles)


def test_h2c_is_seen_by_the_name_of_the_port_or_what_the_service_says() -> None:
    for service in (
        a_service(ports=[{"name": "grpc", "port": 80, "targetPort": 3000}]),
        a_service(ports=[{"port": 80, "targetPort": 3000, "appProtocol": "kubernetes.io/h2c"}]),
    ):
        assert imported(a_deployment(), service).document["spec"]["protocol"] == "h2c"


PIECES: dict[str, list[Any]] = {
    "env": [None, [{"name": "A", "value": "1"}], [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]],
    "ports": [None, [], [{"containerPort": 80}], [{"containerPort": 80}, {"containerPort": 81, "name": "b"}]],
    "readinessProbe": [None, {}, {"exec": {"command": ["true"]}}, {"grpc": {"port": 80}}, {"tcpSocket": {"port": 80}}],
    "resources": [None, {}, {"limits": {"memory": "1Gi"}}, {"requests": {"cpu": "100m", "ephemeral-storage": "1Gi"}}],
    "command": [None, ["run"]],
    "securityContext": [None, {}, {"runAsUser": 1}],
}


@given(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in PIECES.items()}), st.booleans())
def test_whatever_a_deployment_is_the_app_can_be_read_and_is_the_same_twice(container: Obj, with_service: bool) -> None:
    deployment = a_deployment(**{name: value for name, value in container.items() if value is not None})
    services = (
        (a_service(ports=[{"port": 80, "targetPort": 80}]),) if with_service else (a_service(selector={"x": "y"}),)
    )
    before = deepcopy(deployment)
    made = imported(deployment, *services)
    assert deployment == before
    assert made == imported(deployment, *services)


# adopting

ADOPTED = ImportPlace(project="demo", environment="production", region="eu", cluster="eu-1")


def a_running_deployment(**annotations: str) -> Obj:
    made = a_deployment()
    made["metadata"] |= {"uid": "u-1", "generation": 2, "annotations": annotations}
    made["status"] = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3}
    return made


def adopting(deployment: Obj, *services: Obj, pods: Any = (), autoscalers: Any = ()) -> ImportedApp:
    made = app_of(deployment, ADOPTED, services=services or (a_service(),), autoscalers=autoscalers)
    check_adoption(deployment, ADOPTED, made, pods, autoscalers)
    errors: list[Any] = []
    read_app(Reader(made.document["spec"], "spec", errors))
    assert not errors, errors
    return made


def a_pod(name: str = "web-h1-abc", owner: str = "web-h1", hash_: str = "h1", **status: Any) -> Obj:
    references = [{"kind": "ReplicaSet", "name": owner, "controller": True}]
    labels = {"app": "web", "pod-template-hash": hash_}
    return {"metadata": {"name": name, "labels": labels, "ownerReferences": references}, "status": status}


def test_what_is_adopted_is_named_and_its_services_lead_to_later_revisions_too() -> None:
    made = adopting(a_running_deployment(), pods=[a_pod(), a_pod("web-h1-def")])
    (row,) = made.document["spec"]["topology"]
    assert row["adopt"] == {
        "cluster": "eu-1", "namespace": "shop", "deployment": "web", "uid": "u-1", "selector": {"app": "web"},
    }  # fmt: skip
    assert made.document["spec"]["podLabels"] == {"app": "web"}
    assert made.notes == ["environment production of demo must have spec.namespace shop"]


def test_its_autoscaler_is_adopted_with_it() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = {"metadata": {"name": "hpa"}, "spec": {"minReplicas": 2, "maxReplicas": 5, "scaleTargetRef": target}}
    (row,) = adopting(a_running_deployment(), autoscalers=[scaler]).document["spec"]["topology"]
    assert (row["adopt"]["autoscaler"], row["autoscaling"]) == ("hpa", {"min": 2, "max": 5})


def test_a_service_that_selects_by_a_label_of_shoal_is_named() -> None:
    deployment, label = a_running_deployment(), "app.kubernetes.io/component"
    deployment["spec"]["template"]["metadata"]["labels"][label] = "web"
    made = adopting(deployment, a_service(selector={label: "web"}))
    assert "podLabels" not in made.document["spec"]
    assert f"Service web selects by {label}, which Shoal sets itself" in made.notes[0]


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("meta.helm.sh/release-name", "Helm release mark has it: keep it out of later upgrades"),
        ("argocd.argoproj.io/tracking-id", "Argo CD applies it: set Prune=false on it"),
        ("kustomize.toolkit.fluxcd.io/name", "Flux (mark) applies it"),
        ("kubectl.kubernetes.io/last-applied-configuration", "it was written by kubectl apply: do not apply its file"),
    ],
)
def test_who_else_applies_it_is_named_with_how_to_end_that(mark: str, said: str) -> None:
    assert said in adopting(a_running_deployment(**{mark: "mark"})).notes[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"paused": True}, "is paused: resume it first (kubectl rollout resume deployment/web)"),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, "by expressions"),
        ({"replicas": 5, "status": {"updatedReplicas": 1, "replicas": 4}}, "is rolling out: wait until"),
        ({"status": {"observedGeneration": 1}}, "is rolling out: wait until"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "is being deleted"),
        ({"pod": a_pod("stray", owner="other-h1")}, "also matches pods that are not its own (stray): change their"),
        (
            {"labels": {"shoal.dev/fleet": "f"}},
            "it belongs to Shoal already (a revision of an App): use another Deployment",
        ),
        ({"annotations": {"shoal.dev/adopted": '{"app":"a/b/c"}'}, "labels": {"shoal.dev/fleet": "f"}}, "(App a/b/c)"),
    ],
)
def test_what_cannot_be_adopted_is_refused_with_the_fix(change: Obj, said: str) -> None:
    deployment = a_running_deployment()
    for name, value in change.items():
        if name in ("labels", "annotations"):
            deployment["metadata"][name] |= value
        elif name == "deletionTimestamp":
            deployment["metadata"][name] = value
        elif name == "status":
            deployment["status"] |= value
        elif name != "pod":
            deployment["spec"][name] = value
    with pytest.raises(NotAdoptable) as refused:
        adopting(deployment, pods=[a_pod(), *([change["pod"]] if "pod" in change else [])])
    assert said in str(refused.value)


def test_adopting_again_for_the_same_app_writes_the_same() -> None:
    first = adopting(a_running_deployment())
    again = a_running_deployment(**{"shoal.dev/adopted": '{"app":"demo/production/web"}'})
    again["metadata"]["labels"] |= {"shoal.dev/fleet": "f", "app.kubernetes.io/managed-by": "krane"}
    second = adopting(again)
    assert second.document == first.document
    assert "App demo/production/web has adopted it already; applied again, this changes nothing" in second.notes
