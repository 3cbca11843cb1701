"""kubectl on a cluster that runs things: rollouts, scaling, what becomes of pods, and the ways to delete.

The nodes are simulated: their pods start at once and do what their annotations say.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.clients.conftest import Kubectl, finished
from tests.clients.workloads import WITHIN, create, create_web, names, pods, read, rolled_out, workload

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking


@pytest.fixture(scope="session")
def cluster(simulated_cluster: ServerProcess) -> ServerProcess:
    return simulated_cluster


# rollouts


def test_a_new_image_is_rolled_out_and_undone(kubectl: Kubectl) -> None:
    create_web(kubectl, 3)
    kubectl("annotate", "deploy/web", "kubernetes.io/change-cause=first")
    kubectl("set", "image", "deploy/web", "nginx=nginx:2")
    kubectl("annotate", "deploy/web", "--overwrite", "kubernetes.io/change-cause=second")
    assert "successfully rolled out" in rolled_out(kubectl)
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["nginx:2"] * 3
    history = kubectl("rollout", "history", "deploy/web").split("\n")
    assert [line.split() for line in history[1:4]] == [["REVISION", "CHANGE-CAUSE"], ["1", "first"], ["2", "second"]]
    assert "nginx:1" in kubectl("rollout", "history", "deploy/web", "--revision=1")
    assert "rolled back" in kubectl("rollout", "undo", "deploy/web")
    rolled_out(kubectl)
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["nginx:1"] * 3
    kubectl("set", "env", "deploy/web", "COLOUR=blue")
    rolled_out(kubectl)
    kubectl("rollout", "undo", "deploy/web", "--to-revision=2")
    rolled_out(kubectl)
    assert read(kubectl, "deploy/web", ".spec.template.spec.containers[0].image") == "nginx:2"
    assert read(kubectl, "deploy/web", ".metadata.annotations.deployment\\.kubernetes\\.io/revision") == "5"
    assert len(names(kubectl, "rs")) == 3  # the first, the second, and the one with the variable
    assert "unable to find specified revision 9" in kubectl.fails("rollout", "undo", "deploy/web", "--to-revision=9")


def test_a_paused_deployment_changes_nothing_until_it_is_resumed(kubectl: Kubectl) -> None:
    create_web(kubectl)
    before = pods(kubectl, "app=web")
    kubectl("rollout", "pause", "deploy/web")
    kubectl("set", "image", "deploy/web", "nginx=nginx:2")
    kubectl("set", "resources", "deploy/web", "--requests=cpu=10m")
    kubectl("wait", "--for=condition=Progressing=Unknown", "deploy/web", WITHIN)
    assert pods(kubectl, "app=web") == before
    assert "DeploymentPaused" in kubectl("describe", "deploy", "web")
    kubectl("scale", "deploy/web", "--replicas=3")  # a size is no rollout
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "deploy/web", WITHIN)
    assert "can't restart paused deployment" in kubectl.fails("rollout", "restart", "deploy/web")
    kubectl("rollout", "resume", "deploy/web")
    rolled_out(kubectl)
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["nginx:2"] * 3
    assert len(names(kubectl, "rs")) == 2, "both changes are one rollout"


@pytest.mark.parametrize("kind", ["deployment", "statefulset", "daemonset"])
def test_a_restart_replaces_every_pod(kubectl: Kubectl, kind: str) -> None:
    create(kubectl, workload(kind))
    rolled_out(kubectl, f"{kind}/web")
    before = set(read(kubectl, "pods", ".items[*].metadata.uid").split())
    assert "restarted" in kubectl("rollout", "restart", f"{kind}/web")
    rolled_out(kubectl, f"{kind}/web")
    after = set(read(kubectl, "pods", ".items[*].metadata.uid").split())
    assert len(after) == len(before) and not after & before


def test_a_rollout_without_progress_is_reported(kubectl: Kubectl) -> None:
    create_web(kubectl, 3)
    broken = {"metadata": {"annotations": {"simulated.shoal.dev/image-error": "true"}}}
    change = {"spec": {"progressDeadlineSeconds": 1, "template": broken}}
    kubectl("patch", "deploy", "web", "-p", json.dumps(change))
    assert "exceeded its progress deadline" in kubectl.fails("rollout", "status", "deploy/web", WITHIN)
    assert read(kubectl, "deploy/web", ".status.availableReplicas") == "3", "the old pods go on"
    assert "ErrImagePull" in kubectl("get", "pods")
    assert "ProgressDeadlineExceeded" in kubectl("describe", "deploy", "web")
    kubectl("rollout", "undo", "deploy/web")
    rolled_out(kubectl)
    eventually_blocking(lambda: kubectl("get", "pods"), until=lambda text: "ErrImagePull" not in text)


def test_recreate_leaves_no_old_pod_beside_a_new_one(kubectl: Kubectl) -> None:
    web = workload("deployment")
    web["spec"]["strategy"] = {"type": "Recreate"}
    create(kubectl, web)
    rolled_out(kubectl)
    old = {name.removeprefix("pod/") for name in pods(kubectl, "app=web")}
    with kubectl.started("get", "pods", "-w", "--output-watch-events", "--no-headers") as watching:
        assert watching.stdout is not None
        for _ in old:
            assert watching.stdout.readline().startswith("ADDED")
        kubectl("set", "image", "deploy/web", "web=i:2")
        gone = set()
        while (event := watching.stdout.readline().split()[:2])[1] in old:
            if event[0] == "DELETED":
                gone.add(event[1])
        assert gone == old
    rolled_out(kubectl)


# scaling


def test_scale_up_and_down(kubectl: Kubectl) -> None:
    create_web(kubectl, 1)
    assert "scaled" in kubectl("scale", "deploy/web", "--replicas=5")
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=5", "deploy/web", WITHIN)
    assert len(set(read(kubectl, "pods", ".items[*].spec.nodeName").split())) == 3, "spread over the nodes"
    assert "Expected replicas to be 2, was 5" in kubectl.fails(
        "scale", "deploy/web", "--current-replicas=2", "--replicas=9"
    )
    kubectl("scale", "deploy/web", "--current-replicas=5", "--replicas=0")
    kubectl("wait", "--for=delete", "pod", "-l", "app=web", WITHIN)
    header, row = kubectl("get", "deploy", "web").splitlines()
    assert row.split()[:4] == ["web", "0/0", "0", "0"]


@pytest.mark.parametrize("kind", ["replicaset", "replicationcontroller"])
def test_pods_that_are_lost_or_taken_out_are_replaced(kubectl: Kubectl, kind: str) -> None:
    create(kubectl, workload(kind))
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", f"{kind}/web", WITHIN)
    first, second = pods(kubectl, "app=web")
    kubectl("delete", first, "--grace-period=0", "--force")
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", f"{kind}/web", WITHIN)
    kubectl("label", second, "app=aside", "--overwrite")
    assert "Controlled By" not in eventually_blocking(
        lambda: kubectl("describe", second), until=lambda text: "Controlled" not in text
    )
    eventually_blocking(lambda: pods(kubectl, "app=web"), until=lambda found: len(found) == 2)
    kubectl("scale", f"{kind}/web", "--replicas=1")
    eventually_blocking(lambda: pods(kubectl, "app=web"), until=lambda found: len(found) == 1)
    assert pods(kubectl, "app=aside") == [second]


def test_autoscale_keeps_within_its_bounds(kubectl: Kubectl) -> None:
    create_web(kubectl, 1)
    assert "autoscaled" in kubectl("autoscale", "deployment", "web", "--min=3", "--max=5", "--cpu-percent=50")
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=3", "deploy/web", WITHIN)
    described = eventually_blocking(
        lambda: kubectl("describe", "hpa", "web"), until=lambda text: "SuccessfulRescale" in text
    )
    assert "New size: 3; reason: Current number of replicas below Spec.MinReplicas" in described
    _, row = kubectl("get", "hpa", "web").splitlines()
    assert row.split()[:2] == ["web", "Deployment/web"] and "3         5" in row


# services


def test_a_service_follows_its_pods(kubectl: Kubectl) -> None:
    create_web(kubectl)
    assert "exposed" in kubectl("expose", "deploy", "web", "--port=80", "--target-port=8080")
    eventually_blocking(
        lambda: kubectl("get", "endpointslices", "--no-headers"), until=lambda text: text.count("10.0.") == 2
    )
    addresses = read(kubectl, "pods", ".items[*].status.podIP").split()
    described = kubectl("describe", "svc", "web")
    assert all(f"{address}:8080" in described for address in addresses)
    assert all(f"{address}:8080" in kubectl("get", "endpoints", "web") for address in addresses)
    kubectl("scale", "deploy/web", "--replicas=0")
    eventually_blocking(
        lambda: kubectl("describe", "svc", "web"), until=lambda text: "8080," not in text and "10.0." not in text
    )


def test_run_makes_a_pod_and_a_service(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image=nginx", "--port=80", "--expose", "--labels=app=p")
    kubectl("wait", "--for=condition=Ready", "pod/p", WITHIN)
    header, row = kubectl("get", "pod", "p", "-o", "wide").splitlines()
    assert header.split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert row.split()[:4] == ["p", "1/1", "Running", "0"] and row.split()[6].startswith("node-")
    address = read(kubectl, "pod/p", ".status.podIP")
    eventually_blocking(lambda: kubectl("get", "endpoints", "p"), until=lambda text: f"{address}:80" in text)


# what users see


def test_get_all_lists_a_workload_and_its_children(kubectl: Kubectl) -> None:
    create_web(kubectl, 1)
    kubectl("create", "job", "once", "--image=busybox")
    kubectl("wait", "--for=condition=Complete", "job/once", WITHIN)
    listed = [name.split("/")[0] for name in names(kubectl, "all")]
    assert listed == ["pod", "pod", "deployment.apps", "replicaset.apps", "job.batch"]
    text = kubectl("get", "all", "-o", "wide")
    assert "1/1" in text and "Completed" in text and "pod-template-hash=" in text


def test_describe_shows_what_happened_to_every_workload(kubectl: Kubectl) -> None:
    kinds = ["deployment", "replicaset", "replicationcontroller", "statefulset", "daemonset", "job"]
    for kind in kinds:
        create(kubectl, workload(kind, name=kind, **({"run_seconds": "0"} if kind == "job" else {})))
    expected = {
        "deployment": ("deployment-controller", "Scaled up replica set"),
        "replicaset": ("replicaset-controller", "Created pod: replicaset-"),
        "replicationcontroller": ("replication-controller", "Created pod: replicationcontroller-"),
        "statefulset": ("statefulset-controller", "Create Pod statefulset-1 in StatefulSet statefulset successful"),
        "daemonset": ("daemonset-controller", "Created pod: daemonset-"),
        "job": ("job-controller", "Job completed"),
    }
    for kind, (component, message) in expected.items():
        text = eventually_blocking(
            lambda kind=kind: kubectl("describe", kind, kind), until=lambda text, said=message: said in text
        )
        assert component in text, text
        assert "Pods Status" in text or "Replicas:" in text
    pod = pods(kubectl, "app=statefulset")[0]
    text = eventually_blocking(
        lambda: kubectl("describe", pod), until=lambda text: "Scheduled" in text.partition("Events")[2]
    )
    assert "Successfully assigned" in text and "default-scheduler" in text and "Controlled By:  StatefulSet/" in text


def test_events_are_listed_in_order(kubectl: Kubectl) -> None:
    create_web(kubectl, 1)
    kubectl("set", "image", "deploy/web", "nginx=nginx:2")
    rolled_out(kubectl)
    text = eventually_blocking(
        lambda: kubectl("describe", "deploy", "web"), until=lambda text: text.count("ScalingReplicaSet") == 3
    )
    told = [line.split() for line in text.splitlines() if "ScalingReplicaSet" in line]
    assert [" ".join(words[4:6]) for words in told] == ["Scaled up", "Scaled up", "Scaled down"]
    assert "Scaled up replica set" in kubectl("events", "--for=deployment/web")
    made = kubectl("get", "events", "--field-selector=reason=SuccessfulCreate", "--no-headers").splitlines()
    assert len(made) == 2 and all("replicaset/web-" in line for line in made)


def test_a_pod_that_fits_nowhere_says_why(kubectl: Kubectl) -> None:
    kubectl("run", "big", "--image=x", overrides({"containers": [big_container()]}))
    text = eventually_blocking(lambda: kubectl("describe", "pod", "big"), until=lambda text: "FailedScheduling" in text)
    assert "0/3 nodes are available: 3 Insufficient cpu." in text
    assert kubectl("get", "pod", "big", "--no-headers").split()[:3] == ["big", "0/1", "Pending"]
    kubectl("run", "picky", "--image=x", overrides({"nodeSelector": {"disk": "fast"}}))
    text = eventually_blocking(
        lambda: kubectl("describe", "pod", "picky"), until=lambda text: "FailedScheduling" in text
    )
    assert "didn't match Pod's node affinity/selector" in text


def test_a_pod_that_crashes_says_so(kubectl: Kubectl) -> None:
    kubectl("run", "crash", "--image=x", "--annotations=simulated.shoal.dev/run-seconds=0",
            "--annotations=simulated.shoal.dev/exit-code=3")  # fmt: skip
    eventually_blocking(
        lambda: kubectl("get", "pod", "crash", "--no-headers"), until=lambda text: "CrashLoopBackOff" in text
    )
    text = kubectl("describe", "pod", "crash")
    assert "Exit Code:    3" in text and "Restart Count:  1" in text
    said = "Back-off restarting failed container crash in pod crash"
    assert "kubelet" in eventually_blocking(
        lambda: kubectl("describe", "pod", "crash"), until=lambda text: said in text
    )


def test_wait_for_conditions_of_pods(kubectl: Kubectl) -> None:
    kubectl("run", "slow", "--image=x", "--annotations=simulated.shoal.dev/ready-seconds=0.5")
    with kubectl.started("wait", "--for=condition=Ready", "pod/slow", WITHIN) as waiting:
        kubectl("wait", "--for=jsonpath={.status.phase}=Running", "pod/slow", WITHIN)
        assert "condition met" in finished(waiting)
    kubectl("delete", "pod", "slow", "--wait=false")
    kubectl("wait", "--for=delete", "pod/slow", WITHIN)


def test_a_quota_stops_a_deployment_and_shows_what_is_used(kubectl: Kubectl) -> None:
    kubectl("create", "quota", "few", "--hard=pods=2")
    eventually_blocking(lambda: kubectl("describe", "quota", "few"), until=lambda text: "pods" in text)
    kubectl("create", "deployment", "web", "--image=nginx", "--replicas=4")
    kubectl("wait", "--for=condition=ReplicaFailure", "deploy/web", WITHIN)
    text = eventually_blocking(lambda: kubectl("describe", "rs"), until=lambda text: "FailedCreate" in text)
    assert "exceeded quota: few, requested: pods=1, used: pods=2, limited: pods=2" in text
    eventually_blocking(
        lambda: kubectl("describe", "quota", "few").split(), until=lambda words: words[-3:] == ["pods", "2", "2"]
    )


# deletion


def test_background_deletion_deletes_dependents(kubectl: Kubectl) -> None:
    create_web(kubectl)
    kubectl("delete", "deploy", "web", "--cascade=background")
    kubectl("wait", "--for=delete", "rs", "-l", "app=web", WITHIN)
    kubectl("wait", "--for=delete", "pod", "-l", "app=web", WITHIN)


def test_foreground_deletion_waits_for_dependents(kubectl: Kubectl) -> None:
    create_web(kubectl)
    held = pods(kubectl, "app=web")[0]
    kubectl("patch", held, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
    with kubectl.started("delete", "deploy", "web", "--cascade=foreground", WITHIN) as deleting:
        eventually_blocking(lambda: pods(kubectl, "app=web"), until=lambda found: found == [held])
        assert read(kubectl, "deploy/web", ".metadata.finalizers[0]") == "foregroundDeletion"
        assert len(names(kubectl, "rs")) == 1
        kubectl("patch", held, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert "deleted" in finished(deleting)
    assert names(kubectl, "deploy,rs,pods") == []


def test_orphans_stay_and_are_adopted_again(kubectl: Kubectl) -> None:
    create_web(kubectl)
    before = pods(kubectl, "app=web")
    kubectl("delete", "deploy", "web", "--cascade=orphan")
    assert names(kubectl, "deploy") == []
    replica_set = names(kubectl, "rs")[0]
    assert read(kubectl, replica_set, ".metadata.ownerReferences") == ""
    create_web(kubectl)
    assert pods(kubectl, "app=web") == before and names(kubectl, "rs") == [replica_set]
    assert read(kubectl, replica_set, ".metadata.ownerReferences[0].name") == "web"


def test_deleting_a_namespace_deletes_everything_in_it(kubectl: Kubectl) -> None:
    create_web(kubectl)
    create(kubectl, workload("statefulset", name="db"))
    kubectl("create", "configmap", "held")
    kubectl("patch", "cm", "held", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/hold"]}}')
    with kubectl.started("delete", "ns", kubectl.namespace, WITHIN) as deleting:
        kubectl("wait", "--for=condition=NamespaceFinalizersRemaining", f"ns/{kubectl.namespace}", WITHIN)
        assert "Terminating" in kubectl("get", "ns", kubectl.namespace)
        messages = read(kubectl, f"ns/{kubectl.namespace}", ".status.conditions[*].message")
        assert "example.com/hold in 1 resource instances" in messages
        assert "being terminated" in kubectl.fails("create", "configmap", "late")
        kubectl("patch", "cm", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert "deleted" in finished(deleting)
    assert "NotFound" in kubectl.fails("get", "ns", kubectl.namespace)
    assert kubectl("get", "all").strip() == ""


def overrides(spec: dict[str, Any]) -> str:
    return "--overrides=" + json.dumps({"apiVersion": "v1", "spec": spec})


def big_container() -> dict[str, Any]:
    return {"name": "big", "image": "x", "resources": {"requests": {"cpu": "1000"}}}
