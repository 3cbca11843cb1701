"""Deployments, ReplicaSets, ReplicationControllers and disruption budgets, with the controllers at work."""

from __future__ import annotations

from conformance_api import Api, Resource, conformance, refused
from conformance_live import (
    conditions,
    controller_of,
    image_of,
    name_of,
    observed,
    ready_pods,
    reason,
    settles,
)
from conformance_objects import IMAGE, OTHER_IMAGE, pod, replication_controller, workload

from shoal.kube.objects import Obj

REVISION = "deployment.kubernetes.io/revision"
MISSING_IMAGE = "registry.example.com/pause:404"  # no node can pull it


def complete(deployments: Resource, name: str, replicas: int) -> Obj:
    return observed(
        deployments, name,
        lambda status: all(status.get(count) == replicas for count in ("replicas", "updatedReplicas", "availableReplicas")),
    )  # fmt: skip


def set_image(deployments: Resource, name: str, image: str) -> None:
    container = {"name": "main", "image": image}
    deployments.patch(name, {"spec": {"template": {"spec": {"containers": [container]}}}}, "strategic")


def sizes(sets: Resource) -> dict[str, int]:
    """Replicas that each set should have, by image."""
    return {image_of(each["spec"]["template"]): each["spec"]["replicas"] for each in sets.items()}


@conformance("[sig-apps] Deployment RollingUpdateDeployment should delete old pods and create new ones [Conformance]")
def test_a_rolling_update_takes_over_what_matches(live: Api, space: str) -> None:
    sets, deployments = live.of("apps/v1", "replicasets", space), live.of("apps/v1", "deployments", space)
    pods = live.of("v1", "pods", space)
    old = workload("web", 1)
    old["metadata"]["annotations"] = {REVISION: "3546343826724305832"}
    old = sets.create(old)
    ready_pods(pods, 1)
    wanted = workload("web", 1)
    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = OTHER_IMAGE
    deployments.create(wanted)
    deployment = complete(deployments, "web", 1)
    assert deployment["metadata"]["annotations"][REVISION] == "3546343826724305833"
    settles(lambda: [image_of(each) for each in pods.items()] == [OTHER_IMAGE])
    assert sizes(sets) == {IMAGE: 0, OTHER_IMAGE: 1}
    adopted = sets.get(name_of(old))
    assert (controller_of(adopted) or {})["uid"] == deployment["metadata"]["uid"]
    [new] = [each for each in sets.items() if name_of(each) != "web"]
    mark = new["metadata"]["labels"]["pod-template-hash"]
    assert new["spec"]["selector"]["matchLabels"]["pod-template-hash"] == mark
    assert pods.items()[0]["metadata"]["labels"]["pod-template-hash"] == mark


@conformance("[sig-apps] Deployment RecreateDeployment should delete old pods and create new ones [Conformance]")
def test_recreate_never_mixes_old_and_new(live: Api, space: str) -> None:
    deployments, pods = live.of("apps/v1", "deployments", space), live.of("v1", "pods", space)
    deployments.create(workload("web", 2, strategy={"type": "Recreate"}))
    complete(deployments, "web", 2)
    present: dict[str, str] = {name_of(each): image_of(each) for each in pods.items()}
    with pods.watch(after=pods.list()) as watch:
        set_image(deployments, "web", OTHER_IMAGE)
        complete(deployments, "web", 2)
        while len(present) != 2 or set(present.values()) != {OTHER_IMAGE}:
            event = watch.next()
            name, image = name_of(event["object"]), image_of(event["object"])
            if event["type"] == "DELETED":
                del present[name]
            elif event["object"]["status"]["phase"] in ("Pending", "Running"):
                present[name] = image
            assert len(set(present.values())) <= 1, f"old and new pods at once: {present}"


@conformance("[sig-apps] Deployment deployment should delete old replica sets [Conformance]")
def test_old_replica_sets_are_deleted(live: Api, space: str) -> None:
    sets, deployments = live.of("apps/v1", "replicasets", space), live.of("apps/v1", "deployments", space)
    deployments.create(workload("web", 1, revisionHistoryLimit=0))
    complete(deployments, "web", 1)
    set_image(deployments, "web", OTHER_IMAGE)
    complete(deployments, "web", 1)
    settles(lambda: [image_of(each["spec"]["template"]) for each in sets.items()] == [OTHER_IMAGE])


@conformance("[sig-apps] Deployment deployment should support rollover [Conformance]")
def test_a_rollout_can_be_rolled_over(live: Api, space: str) -> None:
    sets, deployments = live.of("apps/v1", "replicasets", space), live.of("apps/v1", "deployments", space)
    pods = live.of("v1", "pods", space)
    sets.create(workload("web", 1))
    ready_pods(pods, 1)
    stuck = workload("web", 1, minReadySeconds=0, strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}})
    stuck["spec"]["template"]["spec"]["containers"][0]["image"] = MISSING_IMAGE
    deployments.create(stuck)
    settles(lambda: sizes(sets) == {IMAGE: 1, MISSING_IMAGE: 1})
    set_image(deployments, "web", OTHER_IMAGE)
    complete(deployments, "web", 1)
    settles(lambda: sizes(sets) == {IMAGE: 0, MISSING_IMAGE: 0, OTHER_IMAGE: 1})
    settles(lambda: [image_of(each) for each in pods.items()] == [OTHER_IMAGE])


@conformance("[sig-apps] Deployment deployment should support proportional scaling [Conformance]")
def test_scaling_in_a_rollout_keeps_the_proportions(live: Api, space: str) -> None:
    sets, deployments = live.of("apps/v1", "replicasets", space), live.of("apps/v1", "deployments", space)
    deployments.create(workload("web", 10, strategy={"rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}))
    complete(deployments, "web", 10)
    set_image(deployments, "web", MISSING_IMAGE)
    # at least 8 available, at most 13 in all
    settles(lambda: sizes(sets) == {IMAGE: 8, MISSING_IMAGE: 5})
    observed(deployments, "web", lambda status: status["availableReplicas"] == 8)
    deployments.patch("web", {"spec": {"replicas": 30}})
    # of 20 more the larger set gets the larger part
    settles(lambda: sizes(sets) == {IMAGE: 20, MISSING_IMAGE: 13})


def check_adoption(live: Api, space: str, owners: Resource, owner: Obj) -> None:
    pods = live.of("v1", "pods", space)
    name = name_of(owner)
    pods.create(pod("orphan", {"app": name}))
    ready_pods(pods, 1)
    created = owners.create(owner)
    adopted = settles(lambda: controller_of(pods.get("orphan")))
    assert (adopted["uid"], adopted["blockOwnerDeletion"]) == (created["metadata"]["uid"], True)
    assert pods.names() == ["orphan"]


def check_release(live: Api, space: str, owners: Resource, name: str) -> None:
    pods = live.of("v1", "pods", space)
    [found] = ready_pods(pods, 1, f"app={name}")
    pods.patch(name_of(found), {"metadata": {"labels": {"app": "not-matching"}}})
    settles(lambda: controller_of(pods.get(name_of(found))) is None)
    [other] = ready_pods(pods, 1, f"app={name}")
    assert name_of(other) != name_of(found)
    assert owners.get(name)["spec"]["replicas"] == 1


@conformance(
    "[sig-apps] ReplicaSet should adopt matching pods on creation and release no longer matching pods [Conformance]"
)
def test_a_replica_set_adopts_and_releases(live: Api, space: str) -> None:
    sets = live.of("apps/v1", "replicasets", space)
    check_adoption(live, space, sets, workload("web", 1))
    check_release(live, space, sets, "web")


@conformance("[sig-apps] ReplicationController should adopt matching pods on creation [Conformance]")
def test_a_replication_controller_adopts(live: Api, space: str) -> None:
    controllers = live.of("v1", "replicationcontrollers", space)
    check_adoption(live, space, controllers, replication_controller("web", 1))


@conformance("[sig-apps] ReplicationController should release no longer matching pods [Conformance]")
def test_a_replication_controller_releases(live: Api, space: str) -> None:
    controllers = live.of("v1", "replicationcontrollers", space)
    controllers.create(replication_controller("web", 1))
    check_release(live, space, controllers, "web")


@conformance(
    "[sig-apps] ReplicationController should surface a failure condition on a common issue like exceeded quota"
    " [Conformance]"
)
def test_a_quota_shows_as_a_failure(live: Api, space: str) -> None:
    controllers, quotas = live.of("v1", "replicationcontrollers", space), live.of("v1", "resourcequotas", space)
    quotas.create({"metadata": {"name": "condition-test"}, "spec": {"hard": {"pods": "2"}}})
    settles(lambda: quotas.get("condition-test").get("status", {}).get("hard"))
    controllers.create(replication_controller("web", 3))
    failing = observed(controllers, "web", lambda status: status.get("conditions"))
    assert conditions(failing) == {"ReplicaFailure": "True"}
    assert reason(failing, "ReplicaFailure") == "FailedCreate"
    controllers.patch("web", {"spec": {"replicas": 2}}, sub="scale")
    observed(controllers, "web", lambda status: status["replicas"] == 2 and not status.get("conditions"))


@conformance("[sig-apps] DisruptionController should observe PodDisruptionBudget status updated [Conformance]")
def test_a_budget_counts_its_pods(live: Api, space: str) -> None:
    pods, budgets = live.of("v1", "pods", space), live.of("policy/v1", "poddisruptionbudgets", space)
    selector = {"matchLabels": {"foo": "bar"}}
    budgets.create({"metadata": {"name": "foo"}, "spec": {"minAvailable": 1, "selector": selector}})
    for number in range(3):
        pods.create(pod(f"pod-{number}", {"foo": "bar"}))
    ready_pods(pods, 3)
    counted = observed(budgets, "foo", lambda status: status["disruptionsAllowed"] == 2)["status"]
    assert (counted["currentHealthy"], counted["desiredHealthy"], counted["expectedPods"]) == (3, 1, 3)
    for number in range(2):
        live.create(f"{pods.path}/pod-{number}/eviction", eviction(f"pod-{number}"))
    settles(lambda: pods.names() == ["pod-2"])
    observed(budgets, "foo", lambda status: status["disruptionsAllowed"] == 0)
    assert refused("TooManyRequests", live.create, f"{pods.path}/pod-2/eviction", eviction("pod-2")).code == 429


def eviction(name: str) -> Obj:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
