"""kubectl with Jobs, CronJobs, StatefulSets with their claims, and DaemonSets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.clients.conftest import NODES, Kubectl, finished
from tests.clients.workloads import WITHIN, create, names, pods, read, rolled_out, workload

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking


@pytest.fixture(scope="session")
def cluster(simulated_cluster: ServerProcess) -> ServerProcess:
    return simulated_cluster


# Jobs and CronJobs


def a_job(name: str = "work", *, run: str = "0", **spec: Any) -> dict[str, Any]:
    made = workload("job", name, run_seconds=run)
    made["spec"] |= spec
    return made


def failing(job: dict[str, Any], code: int = 3) -> dict[str, Any]:
    job["spec"]["template"]["metadata"]["annotations"]["simulated.shoal.dev/exit-code"] = str(code)
    return job


def test_a_job_runs_to_its_completions(kubectl: Kubectl) -> None:
    create(kubectl, a_job(completions=4, parallelism=2))
    kubectl("wait", "--for=condition=Complete", "job/work", WITHIN)
    header, row = kubectl("get", "job", "work").splitlines()
    assert header.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["work", "Complete", "4/4"]
    assert [line.split()[2] for line in kubectl("get", "pods", "--no-headers").splitlines()] == ["Completed"] * 4
    text = eventually_blocking(lambda: kubectl("describe", "job", "work"), until=lambda text: "Job completed" in text)
    assert "0 Active (0 Ready) / 4 Succeeded / 0 Failed" in text


def test_an_indexed_job_numbers_its_pods(kubectl: Kubectl) -> None:
    create(kubectl, a_job(completions=3, parallelism=3, completionMode="Indexed"))
    kubectl("wait", "--for=condition=Complete", "job/work", WITHIN)
    assert read(kubectl, "job/work", ".status.completedIndexes") == "0-2"
    label = "batch.kubernetes.io/job-completion-index"
    numbers = kubectl("get", "pods", "-L", label, "--no-headers").splitlines()
    assert sorted(line.split()[-1] for line in numbers) == ["0", "1", "2"]


def test_a_job_whose_pods_fail_fails(kubectl: Kubectl) -> None:
    create(kubectl, failing(a_job(backoffLimit=0)))
    kubectl("wait", "--for=condition=Failed", "job/work", WITHIN)
    assert kubectl("get", "job", "work", "--no-headers").split()[:3] == ["work", "Failed", "0/1"]
    assert kubectl("get", "pods", "--no-headers").split()[2] == "Error"
    text = eventually_blocking(
        lambda: kubectl("describe", "job", "work"), until=lambda text: "BackoffLimitExceeded" in text
    )
    assert "Job has reached the specified backoff limit" in text


def test_a_job_is_suspended_and_resumed(kubectl: Kubectl) -> None:
    create(kubectl, a_job(run="600", suspend=True))
    kubectl("wait", "--for=condition=Suspended", "job/work", WITHIN)
    assert names(kubectl, "pods") == []
    kubectl("patch", "job", "work", "-p", '{"spec":{"suspend":false}}')
    kubectl("wait", "--for=jsonpath={.status.ready}=1", "job/work", WITHIN)
    kubectl("patch", "job", "work", "-p", '{"spec":{"suspend":true}}')
    eventually_blocking(lambda: names(kubectl, "pods"), until=lambda found: found == [])
    assert kubectl("get", "job", "work", "--no-headers").split()[1] == "Suspended"


def test_a_finished_job_is_deleted_after_its_ttl(kubectl: Kubectl) -> None:
    create(kubectl, a_job(ttlSecondsAfterFinished=0))
    kubectl("wait", "--for=delete", "job/work", WITHIN)
    eventually_blocking(lambda: names(kubectl, "pods"), until=lambda found: found == [])


def test_a_cronjob_starts_what_is_due(kubectl: Kubectl) -> None:
    kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=* * * * *", "--", "true")
    header, row = kubectl("get", "cronjob").splitlines()
    assert header.split("   ")[0].strip() == "NAME" and "LAST SCHEDULE" in header and "* * * * *" in row
    made_at = "2020-01-01T00:00:00Z"  # so that a run has been missed since
    status = json.dumps({"status": {"lastScheduleTime": made_at}})
    kubectl("patch", "cronjob", "nightly", "--subresource=status", "--type=merge", "-p", status)
    [job] = eventually_blocking(lambda: names(kubectl, "jobs"), until=lambda found: len(found) == 1)
    kubectl("wait", "--for=condition=Complete", job, WITHIN)
    text = eventually_blocking(
        lambda: kubectl("describe", "cronjob", "nightly"), until=lambda text: "SawCompletedJob" in text
    )
    assert "Created job nightly-" in text and "Last Schedule Time:  <unset>" not in text
    kubectl("patch", "cronjob", "nightly", "-p", '{"spec":{"suspend":true}}')
    assert "True" in kubectl("get", "cronjob", "nightly", "--no-headers").split()
    kubectl("delete", "cronjob", "nightly")
    eventually_blocking(lambda: names(kubectl, "jobs,pods"), until=lambda found: found == [])


def test_a_cronjob_is_run_by_hand(kubectl: Kubectl) -> None:
    kubectl("create", "cronjob", "nightly", "--image=busybox", "--schedule=0 3 * * *", "--", "true")
    kubectl("create", "job", "now", "--from=cronjob/nightly")
    kubectl("wait", "--for=condition=Complete", "job/now", WITHIN)
    text = kubectl("describe", "job", "now")
    assert "Controlled By:    CronJob/nightly" in text and "cronjob.kubernetes.io/instantiate: manual" in text


# StatefulSets


def a_database(**annotations: str) -> dict[str, Any]:
    made = workload("statefulset", "db", **annotations)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made["spec"] |= {"serviceName": "db", "replicas": 3}
    made["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    made["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


def bound(kubectl: Kubectl) -> dict[str, str]:
    """The volumes of the claims that have one."""
    lines = kubectl("get", "pvc", "--no-headers").splitlines()
    return {words[0]: words[2] for words in (line.split() for line in lines) if words[1] == "Bound"}


def test_pods_of_a_statefulset_start_one_after_the_other(kubectl: Kubectl) -> None:
    with kubectl.started("get", "pods", "-w", "--output-watch-events", "--no-headers") as watching:
        create(kubectl, a_database(ready_seconds="0.2"))
        rolled_out(kubectl, "sts/db")
        assert watching.stdout is not None
        seen: list[str] = []
        while seen[-1:] != ["db-2 ready"]:
            event, name, ready, *_ = watching.stdout.readline().split()
            if event == "ADDED":
                seen.append(f"{name} made")
            elif ready == "1/1":
                seen.append(f"{name} ready")
    assert seen == ["db-0 made", "db-0 ready", "db-1 made", "db-1 ready", "db-2 made", "db-2 ready"]


def test_claims_outlive_the_pods_of_a_statefulset(kubectl: Kubectl) -> None:
    create(kubectl, a_database())
    rolled_out(kubectl, "sts/db")
    volumes = bound(kubectl)
    assert set(volumes) == {"data-db-0", "data-db-1", "data-db-2"}
    described = kubectl("describe", "pvc", "data-db-1")
    assert "StorageClass:  local" in described and "Used By:       db-1" in described
    assert "ProvisioningSucceeded" in eventually_blocking(
        lambda: kubectl("describe", "pvc", "data-db-1"), until=lambda text: "ProvisioningSucceeded" in text
    )
    kubectl("scale", "sts/db", "--replicas=1")
    kubectl("wait", "--for=delete", "pod/db-1", "pod/db-2", WITHIN)
    assert bound(kubectl) == volumes
    kubectl("scale", "sts/db", "--replicas=3")
    rolled_out(kubectl, "sts/db")
    assert bound(kubectl) == volumes
    assert read(kubectl, "pod/db-2", ".spec.volumes[0].persistentVolumeClaim.claimName") == "data-db-2"


def test_claims_are_deleted_with_their_volumes_if_the_statefulset_says_so(kubectl: Kubectl) -> None:
    database = a_database()
    database["spec"]["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    create(kubectl, database)
    rolled_out(kubectl, "sts/db")
    volumes = bound(kubectl)
    kubectl("scale", "sts/db", "--replicas=2")
    kubectl("wait", "--for=delete", "pvc/data-db-2", f"pv/{volumes['data-db-2']}", WITHIN)
    kubectl("delete", "sts", "db")
    kubectl("wait", "--for=delete", f"pv/{volumes['data-db-0']}", f"pv/{volumes['data-db-1']}", WITHIN)


def test_a_claim_in_use_is_not_removed(kubectl: Kubectl) -> None:
    create(kubectl, a_database())
    rolled_out(kubectl, "sts/db")
    with kubectl.started("delete", "pvc", "data-db-2", WITHIN) as deleting:
        eventually_blocking(lambda: kubectl("get", "pvc", "data-db-2"), until=lambda text: "Terminating" in text)
        kubectl("scale", "sts/db", "--replicas=2")
        assert "deleted" in finished(deleting)


def test_a_statefulset_is_updated_from_its_end_and_undone(kubectl: Kubectl) -> None:
    create(kubectl, a_database())
    rolled_out(kubectl, "sts/db")
    partition = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 2}}}}
    kubectl("patch", "sts", "db", "-p", json.dumps(partition))
    kubectl("set", "image", "sts/db", "db=i:2")
    assert "partitioned roll out complete: 1 new pods have been updated" in rolled_out(kubectl, "sts/db")
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["i:1", "i:1", "i:2"]
    kubectl("patch", "sts", "db", "-p", json.dumps(partition).replace("2}", "0}"))
    rolled_out(kubectl, "sts/db")
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["i:2"] * 3
    kubectl("rollout", "undo", "sts/db")
    rolled_out(kubectl, "sts/db")
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["i:1"] * 3
    history = kubectl("rollout", "history", "sts/db").splitlines()
    assert [line.split()[0] for line in history[2:] if line] == ["2", "3"]


# DaemonSets


def test_a_daemonset_runs_on_every_node_and_is_updated(kubectl: Kubectl) -> None:
    create(kubectl, workload("daemonset", "agent"))
    assert "successfully rolled out" in rolled_out(kubectl, "ds/agent")
    assert sorted(read(kubectl, "pods", ".items[*].spec.nodeName").split()) == list(NODES)
    kubectl("set", "image", "ds/agent", "agent=i:2")
    rolled_out(kubectl, "ds/agent")
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["i:2"] * 3
    kubectl("rollout", "undo", "ds/agent")
    rolled_out(kubectl, "ds/agent")
    assert read(kubectl, "pods", ".items[*].spec.containers[0].image").split() == ["i:1"] * 3
    header, row = kubectl("get", "ds", "agent").splitlines()
    assert header.split()[:6] == ["NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE"]
    assert row.split()[:6] == ["agent", "3", "3", "3", "3", "3"]


def test_a_daemonset_follows_the_labels_of_nodes(kubectl: Kubectl) -> None:
    label = f"pool-{kubectl.namespace}"
    agent = workload("daemonset", "agent")
    agent["spec"]["template"]["spec"]["nodeSelector"] = {label: "yes"}
    create(kubectl, agent)
    kubectl("wait", "--for=jsonpath={.status.observedGeneration}=1", "ds/agent", WITHIN)
    assert pods(kubectl, "app=agent") == []
    kubectl("label", "node", "node-2", f"{label}=yes")
    kubectl("wait", "--for=jsonpath={.status.numberReady}=1", "ds/agent", WITHIN)
    assert read(kubectl, "pods", ".items[*].spec.nodeName") == "node-2"
    kubectl("label", "node", "node-2", f"{label}-")
    eventually_blocking(lambda: pods(kubectl, "app=agent"), until=lambda found: found == [])
