"""What is reported of a pod."""

from __future__ import annotations

import pytest

from shoal.krane.deployments.instances import fault_of, instance, is_instance
from shoal.wire.fleet.v1 import cluster_pb as pb

NODE = {"topology.kubernetes.io/zone": "eu-a"}


def pod(*, phase="Running", ready="True", statuses=None, conditions=None, address="10.0.0.7", deleting=False, **about):
    container = {
        "name": "app",
        "ports": [{"containerPort": 8080}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "250m", "memory": "128Mi"}},
    }
    running = [{"name": "app", "restartCount": 0, "state": {"running": {"startedAt": "2024-01-01T00:00:05Z"}}}]
    if conditions is None:
        conditions = [{"type": "Ready", "status": ready}] if ready else []
    if deleting:
        about["deletionTimestamp"] = "2024-01-01T00:01:00Z"
    return {
        "metadata": {"name": "web-1", "namespace": "ns", "uid": "u1", **about},
        "spec": {"nodeName": "node-1", "containers": [container]},
        "status": {
            "phase": phase,
            "podIP": address,
            "conditions": conditions,
            "containerStatuses": running if statuses is None else statuses,
        },
    }


def waiting(reason, message="", end=None, restarts=0):
    status = {"name": "app", "restartCount": restarts, "state": {"waiting": {"reason": reason, "message": message}}}
    return [status | ({"lastState": {"terminated": end}} if end else {})]


def test_a_ready_pod_runs_at_a_routable_address():
    found = instance(pod(), NODE)
    assert (found.name, found.uid, found.address, found.node, found.zone) == (
        "web-1",
        "u1",
        "10.0.0.7:8080",
        "node-1",
        "eu-a",
    )
    assert (found.status, found.ready, found.reason, found.restarts) == (pb.InstanceStatus.RUNNING, True, "", 0)
    assert found.started_ms == 1704067205000


def test_a_pod_with_older_values_of_its_secrets_is_outdated():
    started = pod(annotations={"shoal.dev/secrets": "one"})
    assert not instance(started, {}, "one").outdated
    assert instance(started, {}, "two").outdated
    assert not instance(pod(), {}).outdated


def test_addresses_of_the_other_protocol_are_in_brackets():
    assert instance(pod(address="fd00::7"), {}).address == "[fd00::7]:8080"


@pytest.mark.parametrize(
    "conditions", [[], [{"type": "Ready", "status": "False"}], [{"type": "Ready", "status": "Unknown"}]]
)
def test_ready_is_only_what_says_so(conditions):
    found = instance(pod(conditions=conditions), NODE)
    assert not found.ready
    assert found.status == pb.InstanceStatus.PENDING


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_pods_that_have_ended_are_no_instances(phase):
    assert not is_instance(pod(phase=phase))


def test_pods_that_are_being_ended_are_no_instances():
    assert is_instance(pod())
    assert not is_instance(pod(deleting=True))


def test_resources_are_those_of_the_containers():
    found = instance(pod(), NODE)
    assert (found.cpu_millicores, found.memory_mib) == (250, 128)


def test_what_a_resized_container_really_has_counts():
    statuses = [{"name": "app", "restartCount": 0, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "state": {}}]
    found = instance(pod(statuses=statuses), NODE)
    assert (found.cpu_millicores, found.memory_mib) == (1000, 1024)


@pytest.mark.parametrize(
    ("statuses", "reason", "message", "exit_code"),
    [
        (waiting("ErrImagePull", "no such image"), "ErrImagePull", "no such image", 0),
        (waiting("ImagePullBackOff", "back-off"), "ImagePullBackOff", "back-off", 0),
        (waiting("CreateContainerConfigError", "secret missing"), "CreateContainerConfigError", "secret missing", 0),
        (
            waiting("CrashLoopBackOff", "back-off 10s", {"exitCode": 3, "reason": "Error"}, 4),
            "CrashLoopBackOff", "back-off 10s", 3,
        ),
        (
            waiting("CrashLoopBackOff", "back-off 10s", {"exitCode": 137, "reason": "OOMKilled"}, 4),
            "OOMKilled", "back-off 10s", 137,
        ),
        (
            waiting("CrashLoopBackOff", "back-off", {"exitCode": 1, "reason": "Error", "message": "no config"}, 1),
            "CrashLoopBackOff", "no config", 1,
        ),
        (
            [{"name": "app", "restartCount": 0, "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}],
            "Error", "", 2,
        ),
    ],
)  # fmt: skip
def test_what_keeps_a_pod_from_running_is_said(statuses, reason, message, exit_code):
    found = instance(pod(ready="False", statuses=statuses), NODE)
    assert (found.reason, found.message, found.exit_code) == (reason, message, exit_code)
    assert found.status == pb.InstanceStatus.FAILED
    assert found.restarts == statuses[0]["restartCount"]


def test_a_pod_that_runs_again_still_says_why_it_ended():
    statuses = [{
        "name": "app", "restartCount": 1, "state": {"running": {"startedAt": "2024-01-01T00:00:05Z"}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }]  # fmt: skip
    found = instance(pod(statuses=statuses), NODE)
    assert (found.status, found.reason, found.exit_code, found.restarts) == (
        pb.InstanceStatus.RUNNING,
        "OOMKilled",
        137,
        1,
    )
    unready = instance(pod(ready="False", statuses=statuses), NODE)
    assert unready.status == pb.InstanceStatus.PENDING


def test_a_pod_without_a_place_says_why():
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
    found = instance(pod(phase="Pending", conditions=conditions, statuses=[], address=""), {})
    assert (found.status, found.reason, found.message, found.address) == (
        pb.InstanceStatus.PENDING, "Unschedulable", "0/3 nodes", "",
    )  # fmt: skip


def test_a_pod_that_is_being_started_has_nothing_to_say():
    found = instance(pod(phase="Pending", ready="False", statuses=waiting("ContainerCreating")), NODE)
    assert (found.status, found.reason) == (pb.InstanceStatus.PENDING, "")


def test_an_image_that_cannot_be_pulled_is_named():
    back_off = [waiting("ImagePullBackOff", 'Back-off pulling image "shop/web:9"')[0] | {"image": "shop/web:9"}]
    plain = [waiting("ErrImagePull", "unauthorized")[0] | {"image": "shop/web:9"}]
    assert instance(pod(ready="False", statuses=back_off), NODE).message == 'Back-off pulling image "shop/web:9"'
    found = instance(pod(ready="False", statuses=plain), NODE)
    assert (found.reason, found.message) == ("ErrImagePull", "image shop/web:9: unauthorized")


def test_the_newest_warning_explains_a_pod_that_says_nothing_and_only_that():
    event = ("FailedMount", 'secret "db" not found')
    creating = pod(phase="Pending", ready="False", statuses=waiting("ContainerCreating"))
    found = instance(creating, NODE, event=event)
    assert (found.reason, found.message, found.status) == (*event, pb.InstanceStatus.PENDING)
    assert instance(pod(), NODE, event=event).reason == ""
    crashing = pod(ready="False", statuses=waiting("CrashLoopBackOff"))
    assert instance(crashing, NODE, event=event).reason == "CrashLoopBackOff"
    assert fault_of(creating["status"]) == ("", "")
    assert fault_of(crashing["status"])[0] == "CrashLoopBackOff"
    assert fault_of(pod()["status"]) == ("", "")
