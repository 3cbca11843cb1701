"""Deployments, ReplicaSets, StatefulSets, DaemonSets and ReplicationControllers as stored objects: status and scale
subresources, patches, generation and collections. No controller works on them here."""

from __future__ import annotations

from conformance_api import Api, Resource, conformance, labelled, unique
from conformance_objects import IMAGE, OTHER_IMAGE, condition, replication_controller, statefulset, workload

from shoal.kube.objects import Obj


def check_scale(resource: Resource, name: str) -> None:
    """Read the scale, replace it, patch it; the object follows."""
    scale = resource.get(name, "scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"]["replicas"] == 1
    assert scale["metadata"]["resourceVersion"] == resource.get(name)["metadata"]["resourceVersion"]

    scale["spec"]["replicas"] = 2
    assert resource.replace(scale, "scale")["spec"]["replicas"] == 2
    assert resource.get(name)["spec"]["replicas"] == 2

    assert resource.patch(name, {"spec": {"replicas": 4}}, "strategic", "scale")["spec"]["replicas"] == 4
    changed = resource.get(name)
    assert changed["spec"]["replicas"] == 4
    assert changed["metadata"]["generation"] == 3


def check_status_conditions(resource: Resource, name: str) -> None:
    """Conditions written by PUT and by PATCH to /status are kept, watched, and change no generation."""
    generation = resource.get(name)["metadata"].get("generation")
    with resource.watch(fields=f"metadata.name={name}", after=resource.list()) as watch:
        updated = resource.update(
            name, lambda obj: obj.setdefault("status", {}).update(conditions=[condition("StatusUpdate")]), "status"
        )
        assert [c["type"] for c in updated["status"]["conditions"]] == ["StatusUpdate"]
        watch.until("MODIFIED", lambda obj: "StatusUpdate" in types(obj))
        assert "StatusUpdate" in types(resource.get(name, "status"))

        resource.patch(name, {"status": {"conditions": [condition("StatusPatched")]}}, "merge", "status")
        seen = watch.until("MODIFIED", lambda obj: "StatusPatched" in types(obj))
        assert seen["metadata"].get("generation") == generation
    resource.update(name, lambda obj: obj["status"].update(conditions=[]))
    assert types(resource.get(name)) == ["StatusPatched"], "the object's own path changed its status"


def types(obj: Obj) -> list[str]:
    return [found["type"] for found in obj.get("status", {}).get("conditions", ())]


def check_collection(resource: Resource, make: Obj, everywhere: Resource) -> None:
    """Three of a kind are listed by label over all namespaces and deleted as a collection."""
    run = unique("run")
    for number in range(3):
        name = f"{make['metadata']['name']}-{number}"
        resource.create(labelled({**make, "metadata": {"name": name}}, run=run))
    assert len(everywhere.items(f"run={run}")) == 3
    resource.delete_collection(f"run={run}")
    assert everywhere.items(f"run={run}") == []


@conformance("[sig-apps] Deployment Deployment should have a working scale subresource [Conformance]")
def test_deployment_scale(api: Api, namespace: str) -> None:
    deployments = api.of("apps/v1", "deployments", namespace)
    deployments.create(workload("web"))
    check_scale(deployments, "web")


@conformance("[sig-apps] Deployment should validate Deployment Status endpoints [Conformance]")
def test_deployment_status(api: Api, namespace: str) -> None:
    deployments = api.of("apps/v1", "deployments", namespace)
    deployments.create(workload("web"))
    check_status_conditions(deployments, "web")


@conformance("[sig-apps] Deployment should run the lifecycle of a Deployment [Conformance]")
def test_deployment_lifecycle(api: Api, namespace: str) -> None:
    deployments, run = api.of("apps/v1", "deployments", namespace), unique("run")
    with deployments.watch(f"static={run}", after=deployments.list()) as watch:
        created = deployments.create(labelled(workload("web", 2), static=run))
        assert watch.expect("ADDED", "web") == created
        assert created["metadata"]["generation"] == 1

        container = {"name": "main", "image": OTHER_IMAGE}
        pods = {"spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}
        patch = {"metadata": {"labels": {"state": "patched"}}, "spec": {"replicas": 1, "template": pods}}
        patched = deployments.patch("web", patch, "strategic")
        assert patched["metadata"]["generation"] == 2
        assert patched["spec"]["template"]["spec"]["containers"][0]["image"] == OTHER_IMAGE
        assert len(patched["spec"]["template"]["spec"]["containers"]) == 1
        assert watch.expect("MODIFIED", "web")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 2
        assert api.of("apps/v1", "deployments").names(f"static={run}") == ["web"]

        whole = labelled(workload("web", 2), static=run, state="updated")
        deployments.replace(whole)
        assert watch.expect("MODIFIED", "web")["metadata"]["labels"]["state"] == "updated"
        read = deployments.get("web", "status")
        assert read["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE
        assert read["metadata"]["generation"] == 3

        deployments.patch("web", {"status": {"readyReplicas": 0, "availableReplicas": 0}}, "strategic", "status")
        counted = {"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}
        deployments.update("web", lambda obj: obj.update(status=counted), "status")
        seen = watch.until("MODIFIED", lambda obj: obj.get("status", {}).get("readyReplicas") == 2)
        assert seen["metadata"]["generation"] == 3

        deployments.delete("web")
        watch.until("DELETED")
    assert deployments.is_gone("web")


@conformance("[sig-apps] ReplicaSet Replicaset should have a working scale subresource [Conformance]")
def test_replicaset_scale(api: Api, namespace: str) -> None:
    sets = api.of("apps/v1", "replicasets", namespace)
    sets.create(workload("web"))
    check_scale(sets, "web")


@conformance("[sig-apps] ReplicaSet should validate Replicaset Status endpoints [Conformance]")
def test_replicaset_status(api: Api, namespace: str) -> None:
    sets = api.of("apps/v1", "replicasets", namespace)
    sets.create(workload("web"))
    check_status_conditions(sets, "web")


@conformance("[sig-apps] ReplicaSet Replace and Patch tests [Conformance]")
def test_replicaset_replace_and_patch(api: Api, namespace: str) -> None:
    sets = api.of("apps/v1", "replicasets", namespace)
    sets.create(workload("web", 1))
    with sets.watch(fields="metadata.name=web", after=sets.list()) as watch:
        replaced = sets.update("web", lambda obj: obj["spec"].update(replicas=2))
        assert replaced["spec"]["replicas"] == 2
        container = {"name": "main", "image": OTHER_IMAGE}
        pods = {"spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}}
        patch = {"metadata": {"labels": {"test-rs": "patched"}}, "spec": {"replicas": 3, "template": pods}}
        sets.patch("web", patch, "strategic")
        seen = watch.until("MODIFIED", lambda obj: obj["metadata"]["labels"].get("test-rs") == "patched")
    assert seen["spec"]["replicas"] == 3
    assert seen["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 0
    assert seen["spec"]["template"]["spec"]["containers"][0]["image"] == OTHER_IMAGE


@conformance("[sig-apps] ReplicaSet should list and delete a collection of ReplicaSets [Conformance]")
def test_replicaset_collection(api: Api, namespace: str) -> None:
    check_collection(api.of("apps/v1", "replicasets", namespace), workload("web"), api.of("apps/v1", "replicasets"))


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] should have a working scale subresource"
    " [Conformance]"
)
def test_statefulset_scale(api: Api, namespace: str) -> None:
    sets = api.of("apps/v1", "statefulsets", namespace)
    sets.create(statefulset("db"))
    check_scale(sets, "db")


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] should validate Statefulset Status"
    " endpoints [Conformance]"
)
def test_statefulset_status(api: Api, namespace: str) -> None:
    sets = api.of("apps/v1", "statefulsets", namespace)
    sets.create(statefulset("db"))
    check_status_conditions(sets, "db")


@conformance(
    "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] should list, patch and delete a"
    " collection of StatefulSets [Conformance]"
)
def test_statefulset_collection(api: Api, namespace: str) -> None:
    sets, run = api.of("apps/v1", "statefulsets", namespace), unique("run")
    sets.create(labelled(statefulset("db"), run=run))
    assert api.of("apps/v1", "statefulsets").names(f"run={run}") == ["db"]
    patch = {
        "metadata": {"labels": {"test-ss": "patched"}},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": OTHER_IMAGE}]}}},
    }
    patched = sets.patch("db", patch, "strategic")
    assert patched["metadata"]["labels"]["test-ss"] == "patched"
    assert patched["spec"]["replicas"] == 2
    assert patched["spec"]["template"]["spec"]["containers"][0]["image"] == OTHER_IMAGE
    with sets.watch(f"run={run}", after=patched) as watch:
        sets.delete_collection(f"run={run}")
        watch.until("DELETED")
    assert sets.items() == []


@conformance("[sig-apps] Daemon set should list and delete a collection of DaemonSets [Conformance] [Serial]")
def test_daemonset_collection(api: Api, namespace: str) -> None:
    check_collection(
        api.of("apps/v1", "daemonsets", namespace), workload("agent", None), api.of("apps/v1", "daemonsets")
    )


@conformance("[sig-apps] Daemon set should verify changes to a daemon set status [Conformance] [Serial]")
def test_daemonset_status(api: Api, namespace: str) -> None:
    sets = api.of("apps/v1", "daemonsets", namespace)
    sets.create(workload("agent", None))
    check_status_conditions(sets, "agent")


@conformance("[sig-apps] ReplicationController should get and update a ReplicationController scale [Conformance]")
def test_replication_controller_scale(api: Api, namespace: str) -> None:
    controllers = api.of("v1", "replicationcontrollers", namespace)
    controllers.create(replication_controller("web"))
    check_scale(controllers, "web")


@conformance("[sig-apps] ReplicationController should test the lifecycle of a ReplicationController [Conformance]")
def test_replication_controller_lifecycle(api: Api, namespace: str) -> None:
    controllers, run = api.of("v1", "replicationcontrollers", namespace), unique("run")
    with controllers.watch(f"static={run}", after=controllers.list()) as watch:
        created = controllers.create(labelled(replication_controller("web"), static=run))
        watch.expect("ADDED", "web")
        patched = controllers.patch("web", {"metadata": {"labels": {"test-rc": "patched"}}}, "strategic")
        assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
        assert watch.expect("MODIFIED", "web")["metadata"]["labels"]["test-rc"] == "patched"

        controllers.patch("web", {"status": {"replicas": 1, "readyReplicas": 1}}, "strategic", "status")
        assert watch.expect("MODIFIED", "web")["status"]["readyReplicas"] == 1
        assert controllers.get("web", "status")["status"]["replicas"] == 1

        controllers.patch("web", {"spec": {"replicas": 2}}, "strategic", "scale")
        assert watch.expect("MODIFIED", "web")["spec"]["replicas"] == 2
        assert controllers.get("web")["metadata"]["labels"]["test-rc"] == "patched"

        counted = {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}
        controllers.update("web", lambda obj: obj.update(status=counted), "status")
        assert watch.expect("MODIFIED", "web")["status"]["availableReplicas"] == 2

        assert api.of("v1", "replicationcontrollers").names(f"static={run}") == ["web"]
        # Without a policy the kind orphans its pods, which is the work of a controller.
        controllers.delete_collection(f"static={run}", options={"propagationPolicy": "Background"})
        watch.until("DELETED")
    assert controllers.is_gone("web")


@conformance("[sig-apps] ControllerRevision should manage the lifecycle of a ControllerRevision [Conformance] [Serial]")
def test_controller_revision_lifecycle(api: Api, namespace: str) -> None:
    run = unique("run")
    daemonset = api.of("apps/v1", "daemonsets", namespace).create(workload("agent", None))
    revisions = api.of("apps/v1", "controllerrevisions", namespace)
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": "agent",
        "uid": daemonset["metadata"]["uid"],
        "controller": True,
    }

    def revision(number: int) -> Obj:
        metadata = {"name": f"agent-{number}", "labels": {"run": run}, "ownerReferences": [owner]}
        return {"metadata": metadata, "revision": number, "data": {"spec": {"template": daemonset["spec"]["template"]}}}

    first = revisions.create(revision(1))
    assert api.of("apps/v1", "controllerrevisions").names(f"run={run}") == ["agent-1"]
    patched = revisions.patch("agent-1", {"metadata": {"labels": {"agent-1": "patched"}}}, "strategic")
    assert patched["metadata"]["labels"]["agent-1"] == "patched"
    assert int(patched["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])

    assert revisions.create(revision(2))["data"] == first["data"]
    assert revisions.names(f"run={run}") == ["agent-1", "agent-2"]
    revisions.delete("agent-1")
    assert revisions.names(f"run={run}") == ["agent-2"]

    updated = revisions.update("agent-2", lambda obj: obj["metadata"]["labels"].update({"agent-2": "updated"}))
    assert updated["metadata"]["labels"]["agent-2"] == "updated"
    revisions.create(revision(3))
    revisions.delete_collection("agent-2=updated")
    assert [item["revision"] for item in revisions.items(f"run={run}")] == [3]
