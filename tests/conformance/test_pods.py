"""Pods as stored objects: what changes their generation, their status and their QoS class. No node runs them here; a
test that needs a node's view writes it itself."""

from __future__ import annotations

from collections.abc import Callable

from conformance_api import Api, conformance, refused, unique
from conformance_objects import IMAGE, OTHER_IMAGE, pod, pod_spec, workload

from shoal.kube.objects import Obj


@conformance("[sig-node] Pods should be updated [Conformance] [NodeConformance]")
def test_pod_update(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    created = pods.create(pod("pod", {"name": "foo", "time": "1"}))
    assert pods.names("time=1") == ["pod"]
    pods.update("pod", lambda obj: obj["metadata"]["labels"].update(time="2"))
    assert pods.names("time=1") == []
    assert pods.items("time=2")[0]["metadata"]["uid"] == created["metadata"]["uid"]


@conformance("[sig-node] Pods should be submitted and removed [Conformance] [NodeConformance]")
def test_pod_is_submitted_and_removed(api: Api, namespace: str) -> None:
    pods, run = api.of("v1", "pods", namespace), unique("run")
    assert pods.items(f"time={run}") == []
    with pods.watch(f"time={run}", after=pods.list()) as watch:
        pods.create(pod("pod", {"time": run}, terminationGracePeriodSeconds=30))
        assert watch.expect("ADDED", "pod")["status"]["phase"] == "Pending"
        bind(api, namespace, "pod")
        pods.patch("pod", {"status": {"phase": "Running"}}, sub="status")
        pods.delete("pod")
        leaving = watch.until("MODIFIED", lambda obj: "deletionTimestamp" in obj["metadata"])
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
        assert pods.get("pod")["metadata"]["deletionTimestamp"]
        pods.delete("pod", {"gracePeriodSeconds": 0})
        gone = watch.until("DELETED")
        assert gone["metadata"]["deletionTimestamp"]
        assert gone["spec"]["terminationGracePeriodSeconds"] == 30
    assert pods.items(f"time={run}") == []


def bind(api: Api, namespace: str, name: str) -> None:
    """What a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "no-such-node"}
    api.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", {"metadata": {"name": name}, "target": target})


@conformance("[sig-node] Pods should allow activeDeadlineSeconds to be updated [Conformance] [NodeConformance]")
def test_pod_deadline_update(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    pods.create(pod("pod"))
    assert (
        pods.update("pod", lambda obj: obj["spec"].update(activeDeadlineSeconds=5))["spec"]["activeDeadlineSeconds"]
        == 5
    )
    refused("Invalid", pods.update, "pod", lambda obj: obj["spec"].update(activeDeadlineSeconds=10))
    refused("Invalid", pods.update, "pod", lambda obj: obj["spec"].update(hostname="other"))


@conformance("[sig-node] Pods should delete a collection of pods [Conformance]")
def test_pod_collection(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    for number in range(3):
        pods.create(pod(f"test-pod-{number}", {"type": "Testing"}, terminationGracePeriodSeconds=1))
    pods.create(pod("another"))
    pods.delete_collection("type=Testing")
    assert pods.names() == ["another"]


@conformance("[sig-node] Pods should patch a pod status [Conformance]")
def test_pod_status_patch(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    pods.create(pod("pod"))
    status = {"message": "Patched by a test", "reason": "E2E"}
    patched = pods.patch(
        "pod", {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": status}, sub="status"
    )
    assert {name: patched["status"][name] for name in status} == status
    assert patched["metadata"]["annotations"]["patchedstatus"] == "true"
    assert patched["status"]["phase"] == "Pending"
    assert patched["metadata"]["generation"] == 1


@conformance("[sig-node] Pods should run through the lifecycle of Pods and PodStatus [Conformance]")
def test_pod_lifecycle(api: Api, namespace: str) -> None:
    pods, run = api.of("v1", "pods", namespace), unique("run")
    with pods.watch(f"static={run}", after=pods.list()) as watch:
        created = pods.create(pod("pod", {"static": run}, terminationGracePeriodSeconds=1))
        watch.expect("ADDED", "pod")
        patch = {
            "metadata": {"labels": {"state": "patched"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": OTHER_IMAGE}]},
        }
        patched = pods.patch("pod", patch, "strategic")
        assert patched["spec"]["containers"][0]["image"] == OTHER_IMAGE
        assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
        assert watch.expect("MODIFIED", "pod")["metadata"]["labels"]["state"] == "patched"

        ready = [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")]
        updated = pods.update("pod", lambda obj: obj["status"].update(conditions=ready), "status")
        assert [(c["type"], c["status"]) for c in updated["status"]["conditions"]] == [
            ("Ready", "False"),
            ("ContainersReady", "False"),
        ]
        pods.delete_collection(f"static={run}", options={"gracePeriodSeconds": 0})
        watch.until("DELETED")
    assert pods.is_gone("pod")


@conformance(
    "[sig-node] Pods Extended (pod generation) Pod Generation pod generation should start at 1 and increment per"
    " update [MinimumKubeletVersion:1.34] [Conformance]"
)
def test_pod_generation_follows_the_spec(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    assert pods.create(pod("pod", initContainers=[{"name": "init", "image": IMAGE}]))["metadata"]["generation"] == 1
    toleration = {"key": "foo", "operator": "Equal", "value": "bar", "effect": "NoSchedule"}
    steps: list[tuple[int, Callable[[Obj], object]]] = [
        (1, lambda obj: None),
        (2, lambda obj: obj["spec"].setdefault("tolerations", []).append(toleration)),
        (3, lambda obj: obj["spec"].update(activeDeadlineSeconds=5000)),
        (4, lambda obj: obj["spec"]["containers"][0].update(image=OTHER_IMAGE)),
        (5, lambda obj: obj["spec"]["initContainers"][0].update(image=OTHER_IMAGE)),
        (5, lambda obj: obj["metadata"].update(annotations={"key": "value"})),
        (5, lambda obj: obj["metadata"].update(generation=1)),
    ]
    for generation, change in steps:
        pods.update("pod", lambda obj, change=change: None if change(obj) else None)  # type: ignore[misc]
        assert pods.get("pod")["metadata"]["generation"] == generation


@conformance(
    "[sig-node] Pods Extended (pod generation) Pod Generation custom-set generation on new pods and graceful delete"
    " [Conformance]"
)
def test_pod_generation_is_the_servers(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    made = pod("pod")
    made["metadata"]["generation"] = 100
    assert pods.create(made)["metadata"]["generation"] == 1
    bind(api, namespace, "pod")
    assert pods.get("pod")["metadata"]["generation"] == 1, "a node is no change of what is wanted"
    pods.delete("pod", gracePeriodSeconds=60)
    leaving = pods.get("pod")["metadata"]
    assert leaving["generation"] == 2
    assert leaving["deletionGracePeriodSeconds"] == 60
    pods.delete("pod", gracePeriodSeconds=0)


@conformance(
    "[sig-node] Pods Extended (pod generation) Pod Generation issue 500 podspec updates and verify generation and"
    " observedGeneration eventually converge [MinimumKubeletVersion:1.34] [Conformance]"
)
def test_pod_generation_counts_every_update(api: Api, namespace: str) -> None:
    """The generation after many updates; a node's observedGeneration is written by the test."""
    pods, count = api.of("v1", "pods", namespace), 100
    pods.create(pod("pod"))
    for number in range(count):
        image = f"registry.example.com/pause:{number % 2 + 2}"
        pods.patch("pod", {"spec": {"containers": [{"name": "main", "image": image}]}}, "strategic")
    assert pods.get("pod")["metadata"]["generation"] == count + 1
    seen = pods.patch("pod", {"status": {"observedGeneration": count + 1}}, sub="status")
    assert seen["status"]["observedGeneration"] == seen["metadata"]["generation"] == count + 1


@conformance(
    "[sig-node] Pods Extended Pods Set QOS Class should be set on Pods with matching resource requests and limits for"
    " memory and cpu [Conformance]"
)
def test_pod_qos_class(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    amounts = {"cpu": "100m", "memory": "100Mi"}
    for name, resources, expected in (
        ("guaranteed", {"requests": amounts, "limits": amounts}, "Guaranteed"),
        ("limits", {"limits": amounts}, "Guaranteed"),
        ("burstable", {"requests": amounts}, "Burstable"),
        ("best-effort", {}, "BestEffort"),
    ):
        container = {"name": "main", "image": IMAGE, "resources": resources}
        created = pods.create({"metadata": {"name": name}, "spec": {"containers": [container]}})
        assert created["status"]["qosClass"] == expected, name


@conformance(
    "[sig-node] Ephemeral Containers should update the ephemeral containers in an existing pod [Conformance]"
    " [NodeConformance]"
)
def test_ephemeral_containers_update(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    assert pods.create(pod("target"))["metadata"]["generation"] == 1
    debugger = {"name": "debugger", "image": IMAGE, "stdin": True, "tty": True}
    pods.patch("target", {"spec": {"ephemeralContainers": [debugger]}}, "strategic", "ephemeralcontainers")
    assert pods.get("target")["metadata"]["generation"] == 2
    assert [c["name"] for c in pods.get("target", "ephemeralcontainers")["spec"]["ephemeralContainers"]] == ["debugger"]

    def add(obj: Obj) -> None:
        obj["spec"]["ephemeralContainers"].append({"name": "debugger2", "image": IMAGE})

    pods.update("target", add, "ephemeralcontainers")
    read = pods.get("target", "ephemeralcontainers")
    assert [c["name"] for c in read["spec"]["ephemeralContainers"]] == ["debugger", "debugger2"]
    assert read["spec"]["ephemeralContainers"][1]["terminationMessagePolicy"] == "File"
    refused(
        "Invalid", pods.update, "target", lambda obj: obj["spec"]["ephemeralContainers"].pop(), "ephemeralcontainers"
    )


@conformance(
    "[sig-cli] Kubectl client Kubectl server-side dry-run should check if kubectl can dry-run update Pods [Conformance]"
)
def test_dry_run_changes_nothing(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    created = pods.create(pod("pod", {"run": "pod"}))
    patch = {"spec": {"containers": [{"name": "main", "image": OTHER_IMAGE}]}}
    tried = pods.patch("pod", patch, "strategic", dryRun="All")
    assert tried["spec"]["containers"][0]["image"] == OTHER_IMAGE
    assert pods.get("pod") == created
    pods.create({"metadata": {"name": "never"}, "spec": pod_spec()}, dryRun="All")
    assert pods.is_gone("never")
    pods.delete("pod", dryRun="All")
    assert pods.get("pod") == created


@conformance("[sig-cli] Kubectl client Kubectl label should update the label on a resource [Conformance]")
def test_label_is_set_and_removed(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    pods.create(pod("pod"))
    pods.patch("pod", {"metadata": {"labels": {"testing-label": "testing-label-value"}}})
    rows = table(api, f"{pods.path}/pod")
    assert rows["rows"][0]["object"]["metadata"]["labels"] == {"testing-label": "testing-label-value"}
    pods.patch("pod", {"metadata": {"labels": {"testing-label": None}}})
    assert not pods.get("pod")["metadata"].get("labels")


def table(api: Api, path: str) -> Obj:
    """What kubectl asks for when it prints."""
    found: Obj = api.get(path, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    assert found["kind"] == "Table"
    return found


@conformance("[sig-cli] Kubectl client Kubectl replace should update a single-container pod's image [Conformance]")
def test_replace_the_image_of_a_pod(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    pods.create(pod("pod", {"run": "pod"}))
    pods.update("pod", lambda obj: obj["spec"]["containers"][0].update(image=OTHER_IMAGE))
    assert pods.get("pod")["spec"]["containers"][0]["image"] == OTHER_IMAGE


@conformance("[sig-cli] Kubectl client Kubectl patch should add annotations for pods in rc [Conformance]")
def test_annotate_every_pod_of_a_selector(api: Api, namespace: str) -> None:
    pods = api.of("v1", "pods", namespace)
    for number in range(3):
        pods.create(pod(f"agnhost-{number}", {"app": "agnhost"}))
    for name in pods.names("app=agnhost"):
        pods.patch(name, {"metadata": {"annotations": {"x": "y"}}}, "strategic")
    assert [item["metadata"]["annotations"]["x"] for item in pods.items("app=agnhost")] == ["y", "y", "y"]


@conformance(
    "[sig-cli] Kubectl client Kubectl diff should check if kubectl diff finds a difference for Deployments [Conformance]"
)
def test_a_dry_run_shows_the_difference(api: Api, namespace: str) -> None:
    deployments = api.of("apps/v1", "deployments", namespace)
    live = deployments.create(workload("httpd-deployment"))
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": OTHER_IMAGE}]}}}}
    merged = deployments.patch("httpd-deployment", patch, "strategic", dryRun="All")
    assert merged["spec"]["template"]["spec"]["containers"][0] == {
        **live["spec"]["template"]["spec"]["containers"][0],
        "image": OTHER_IMAGE,
    }
    assert deployments.get("httpd-deployment") == live
