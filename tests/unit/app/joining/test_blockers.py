"""What keeps agents from joining, told from the state of the cluster."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.app.findings import FindingVerdict
from shoal.app.joining.blockers import (
    Blocker,
    ClusterState,
    blockers,
    causes,
    image_fix,
    is_rolled_out,
    last_problem,
    problem_fix,
)
from shoal.app.joining.examine import version_finding
from shoal.app.joining.fleet import loopback_urls
from shoal.app.joining.manifests import draft
from shoal.app.joining.service import JoinWatch
from shoal.app.public_address import is_loopback
from shoal.base.clock import FakeClock

LABELS = {"app.kubernetes.io/name": "shoal-krane"}


def a_pod(waiting: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    state = {"waiting": waiting} if waiting else {"running": {}}
    owner = {"kind": "ReplicaSet", "uid": "new", "controller": True}
    about = {"name": "shoal-krane-1", "labels": LABELS, "ownerReferences": [owner]}
    return {"kind": "Pod", "metadata": about, "status": {"containerStatuses": [{"state": state, **container}]}}


def a_set(message: str = "", uid: str = "new", revision: int = 2) -> dict[str, Any]:
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    revisions = {"deployment.kubernetes.io/revision": str(revision)}
    about = {"name": "shoal-krane-abc", "uid": uid, "labels": LABELS, "annotations": revisions}
    return {"kind": "ReplicaSet", "metadata": about, "status": {"conditions": [failure] if message else []}}


def of_pod(pod: dict[str, Any], **logs: str) -> ClusterState:
    return ClusterState(replica_sets=(a_set(),), pods=(pod,), logs=logs)


def the_only(state: ClusterState) -> tuple[str, str]:
    (found,) = blockers(state)
    assert found.part == "shoal-krane"
    return found.what, found.fix


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ("manifest unknown: not found", "push the image to this name"),
        ("pull access denied, repository requires authentication", "--pull-secret"),
        ("dial tcp: lookup registry.example: no such host", "cannot reach the registry"),
        ("x509: certificate signed by unknown authority", "cannot reach the registry"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_named_with_its_cause(message: str, fix: str) -> None:
    what, found = the_only(of_pod(a_pod({"reason": "ImagePullBackOff", "message": message})))
    assert what == f"ImagePullBackOff: {message}" and fix in found and found == image_fix(message)


@pytest.mark.parametrize(
    ("message", "fix"),
    [
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest"', "pod-security.kubernetes.io/enforce"),
        ('pods "a" is forbidden: exceeded quota: tight', "ResourceQuota"),
        ('admission webhook "policy.corp" denied the request: no', "exempt namespace shoal-system"),
    ],
)
def test_pods_that_the_server_refuses_are_told_from_the_replica_set(message: str, fix: str) -> None:
    what, found = the_only(ClusterState(replica_sets=(a_set(message),)))
    assert message in what and fix in found


def test_replica_sets_and_pods_of_older_revisions_block_nothing() -> None:
    older = a_set("exceeded quota", uid="old", revision=1)
    pod = a_pod({"reason": "ErrImagePull", "message": "no"})
    pod["metadata"]["ownerReferences"][0]["uid"] = "old"
    assert not blockers(ClusterState(replica_sets=(older, a_set()), pods=(pod,)))


@pytest.mark.parametrize(
    ("reason", "fix"),
    [
        ('host "fleet.example" not found: Name or service not known', "--advertise-url"),
        ("connection refused: nothing listens on 10.0.0.1:7400", "--https-proxy"),
        ("the certificate of fleet.example:7400 is not trusted: unable to get local issuer", "--ca FILE"),
        ("the certificate of fleet.example:7400 is not trusted: certificate is not yet valid", "clocks"),
        ("the token is not known", "join again"),
        ("the cluster's API server cannot be used: connection refused", "the Service default/kubernetes"),
        ('secrets is forbidden: User "x" cannot list resource "secrets"', "join again as an administrator"),
    ],
)
def test_an_agent_that_runs_and_does_not_join_is_told_from_its_log(reason: str, fix: str) -> None:
    line = json.dumps({"level": "warning", "message": "not joined", "reason": reason})
    log = f'{{"level":"info"}}\n{line}\nplain\n'
    what, found = the_only(of_pod(a_pod(ready=False), **{"shoal-krane-1": log}))
    assert what == f"not joined: {reason}" and fix in found


def test_an_agent_that_stops_is_told_from_its_last_message_else_from_its_exit_code() -> None:
    ended = {"exitCode": 2, "message": "error: join is 'x': no such file\n"}
    waiting = {"reason": "CrashLoopBackOff"}
    pod = a_pod(waiting, lastState={"terminated": ended})
    assert the_only(of_pod(pod))[0].endswith("join is 'x': no such file")
    pod = a_pod(waiting, lastState={"terminated": {"exitCode": 137}})
    what, fix = the_only(of_pod(pod))
    assert what.endswith("exit code 137") and "--previous" in fix


def test_a_pod_without_a_node_is_told() -> None:
    pod = a_pod({"reason": "ContainerCreating"})
    pod["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
    }
    what, fix = the_only(of_pod(pod))
    assert "0/3 nodes" in what and "add nodes" in fix


def test_what_works_blocks_nothing() -> None:
    assert not blockers(of_pod(a_pod(ready=True)))
    assert not blockers(of_pod(a_pod({"reason": "ContainerCreating"})))


@given(st.text(), st.text())
def test_any_log_and_message_can_be_read(log: str, message: str) -> None:
    assert isinstance(problem_fix(last_problem(log)), str)
    assert blockers(of_pod(a_pod({"reason": "ErrImagePull", "message": message}, restartCount=1)))


@pytest.mark.parametrize(
    ("status", "done"),
    [
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, True),
        ({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}, False),
        ({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}, False),
        ({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, False),
        ({}, False),
    ],
)
def test_a_deployment_is_rolled_out_when_only_its_newest_pods_are_there(status: dict[str, Any], done: bool) -> None:
    assert is_rolled_out({"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}) == done


@pytest.mark.parametrize(
    ("minor", "verdict"),
    [
        ("27+", FindingVerdict.WARNING),
        ("31", FindingVerdict.OK),
        ("34", FindingVerdict.OK),
        ("26", FindingVerdict.FAILED),
        ("?", FindingVerdict.WARNING),
    ],
)
def test_a_version_older_than_the_oldest_supported_fails(minor: str, verdict: FindingVerdict) -> None:
    found = version_finding({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"})
    assert found.verdict is verdict and (verdict is not FindingVerdict.FAILED or "upgrade the cluster" in found.fix)


def test_urls_that_only_this_machine_reaches_are_found() -> None:
    joins = [{"url": "https://127.0.0.1:7400", "urls": ["https://fleet.example", "https://[::1]:1"]}, None]
    assert loopback_urls(joins) == ["https://127.0.0.1:7400", "https://[::1]:1"]
    assert is_loopback("localhost") and not is_loopback("localhost.example")


def refused(part: str, pod: str, why: str = "exceeded quota: tight") -> Blocker:
    return Blocker(part, f'pods are refused: pods "{pod}" is forbidden: {why}', "raise it")


def test_what_several_parts_have_in_common_is_told_once_with_their_names() -> None:
    found = [
        refused("shoal-krane", "shoal-krane-5d8f9-abcde"),
        refused("shoal-edge", "shoal-edge-77c64-x2x4z"),
        refused("shoal-edge", "shoal-edge-77c64-kkkkk", "no container named"),
        Blocker("shoal-shard-manager", "it stops again and again: exit code 1"),
    ]
    told = [str(each).partition(": ") for each in causes(found)]
    assert [(parts, text.count("pods")) for parts, _, text in told] == [
        ("shoal-krane, shoal-edge", 2), ("shoal-edge", 2), ("shoal-shard-manager", 0),
    ]  # fmt: skip


async def test_the_watch_says_a_cause_once_and_names_a_part_that_has_it_later() -> None:
    said: list[str] = []
    plan = draft("img", sharding=False)
    watch = JoinWatch(cast(Any, None), cast(Any, None), "eu-1", plan, clock=FakeClock(), say=said.append)
    krane, edge = refused("shoal-krane", "shoal-krane-5d8f9-abcde"), refused("shoal-edge", "shoal-edge-77c64-x2x4z")
    for found in [[krane, edge]] * 6:
        watch.found(found)
    assert said == [f"shoal-krane, shoal-edge: {krane.what}\n  fix: raise it"]
    del said[:]
    for found in [[Blocker("shoal-krane", "no node")]] * 6 + [
        [Blocker("shoal-krane", "no node"), Blocker("shoal-edge", "no node")]
    ] * 6:
        watch.found(found)
    assert said == ["shoal-krane: no node", "shoal-edge: the same as shoal-krane"]
