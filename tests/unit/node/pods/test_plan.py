"""The next actions for a pod: tables, and a simulation that carries decisions out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pod_views import NOW, SANDBOX, a_container, a_pod, a_view, conditions

from shoal.node.containers import ContainerRole, ContainerWait
from shoal.node.pod_failure import PodFailure
from shoal.node.pods.model import (
    CreateSandbox,
    Finish,
    KillContainer,
    PodDecision,
    PodView,
    RemoveContainer,
    StartContainer,
    StopSandbox,
    Terminate,
)
from shoal.node.pods.plan import plan
from shoal.node.pods.restarts import CRASHES_LABEL, backoff_s
from shoal.node.pods.status import status_of
from shoal.node.probes.model import Probed
from shoal.node.runtime.model import Container, ContainerPhase, Sandbox


def starts(decision: PodDecision) -> list[tuple[str, int]]:
    return [(each.name, each.attempt) for each in decision.actions if isinstance(each, StartContainer)]


def test_a_pod_begins_with_its_sandbox() -> None:
    assert plan(a_view(a_pod(), sandbox=None), NOW).actions == (CreateSandbox(0),)


def test_a_sandbox_that_is_gone_is_replaced_and_everything_starts_again() -> None:
    pod = a_pod(inits=("init",))
    dead = replace(SANDBOX, ready=False)
    view = a_view(
        pod,
        a_container("init", ContainerPhase.EXITED),
        a_container(phase=ContainerPhase.EXITED, code=137),
        sandbox=dead,
    )
    assert plan(view, NOW).actions == (CreateSandbox(1),)
    after = replace(view, sandbox=replace(SANDBOX, id="s2", attempt=1))
    assert starts(plan(after, NOW)) == [("init", 1)]


def test_a_sandbox_is_not_replaced_when_nothing_is_left_to_run() -> None:
    view = a_view(
        a_pod(restartPolicy="Never"), a_container(phase=ContainerPhase.EXITED), sandbox=replace(SANDBOX, ready=False)
    )
    assert plan(view, NOW).actions == (Finish(),)


def test_init_containers_start_one_by_one_and_main_containers_together() -> None:
    pod = a_pod("a", "b", inits=("first", "second"))
    assert starts(plan(a_view(pod), NOW)) == [("first", 0)]
    assert starts(plan(a_view(pod, a_container("first")), NOW)) == []
    done = a_container("first", ContainerPhase.EXITED)
    assert starts(plan(a_view(pod, done), NOW)) == [("second", 0)]
    assert starts(plan(a_view(pod, done, a_container("second", ContainerPhase.EXITED)), NOW)) == [("a", 0), ("b", 0)]


def test_the_next_container_waits_until_a_sidecar_has_started() -> None:
    pod = a_pod(sidecars=("side",))
    side = a_container("side")
    assert starts(plan(a_view(pod), NOW)) == [("side", 0)]
    assert starts(plan(a_view(pod, side, probed={side.id: Probed(started=False, ready=False)}), NOW)) == []
    assert starts(plan(a_view(pod, side), NOW)) == [("c", 0)]


def test_a_sidecar_that_dies_is_started_again_while_main_containers_run() -> None:
    pod = a_pod(sidecars=("side",))
    view = a_view(pod, a_container("side", ContainerPhase.EXITED), a_container())
    assert starts(plan(view, NOW)) == [("side", 1)]


def test_sidecars_end_with_the_last_main_container() -> None:
    pod = a_pod(sidecars=("side",), restartPolicy="Never")
    view = a_view(pod, a_container("side"), a_container(phase=ContainerPhase.EXITED))
    assert plan(view, NOW).actions == (Terminate(), StopSandbox("s"))


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [("Always", 0, True), ("Always", 1, True), ("OnFailure", 0, False), ("OnFailure", 1, True), ("Never", 1, False)],
)
def test_the_restart_policy_decides_by_the_exit_code(policy: str, code: int, again: bool) -> None:
    view = a_view(a_pod(restartPolicy=policy), a_container(phase=ContainerPhase.EXITED, code=code))
    assert starts(plan(view, NOW)) == ([("c", 1)] if again else [])
    assert (StopSandbox("s") in plan(view, NOW).actions) is not again


def test_an_init_container_that_fails_for_good_ends_the_pod() -> None:
    pod = a_pod(inits=("init",), restartPolicy="Never")
    view = a_view(pod, a_container("init", ContainerPhase.EXITED, 1))
    assert plan(view, NOW).actions == (Terminate(), StopSandbox("s"))
    assert status_of(view, {}, "r", NOW)["phase"] == "Failed"


@pytest.mark.parametrize(("crashes", "wait_s"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (30, 300)])
def test_the_backoff_grows_with_each_crash(crashes: int, wait_s: float) -> None:
    container = a_container(phase=ContainerPhase.EXITED, code=1, attempt=crashes, labels={CRASHES_LABEL: str(crashes)})
    assert backoff_s(container) == wait_s
    decision = plan(a_view(a_pod(), container), NOW)
    if not wait_s:
        assert starts(decision) == [("c", 1)]
        return
    assert starts(decision) == []
    assert decision.recheck_at == NOW + wait_s
    assert decision.waits["c"].reason == "CrashLoopBackOff"
    (start,) = (each for each in plan(a_view(a_pod(), container), NOW + wait_s).actions)
    assert start == StartContainer(name="c", role=ContainerRole.MAIN, attempt=crashes + 1, crashes=crashes + 1)


def test_ten_minutes_of_running_reset_the_backoff() -> None:
    container = a_container(phase=ContainerPhase.EXITED, code=1, labels={CRASHES_LABEL: "6"}, started_at=NOW - 600)
    (start,) = plan(a_view(a_pod(), container), NOW).actions
    assert isinstance(start, StartContainer) and start.crashes == 1


@pytest.mark.parametrize("probe", ["liveness", "startup"])
def test_a_failed_probe_kills_the_container(probe: str) -> None:
    container = a_container()
    view = a_view(a_pod(), container, probed={container.id: Probed(failed=probe)})
    (kill,) = plan(view, NOW).actions
    assert kill == KillContainer(
        container_id="c-0", name="c", message=f"Container c failed {probe} probe, will be restarted", probe=probe
    )


def test_only_one_dead_attempt_is_kept_beside_the_newest() -> None:
    attempts = [a_container(phase=ContainerPhase.EXITED, attempt=number, id=f"c-{number}") for number in range(3)]
    decision = plan(a_view(a_pod(), *attempts, a_container(attempt=3, id="c-3")), NOW)
    assert set(decision.actions) == {RemoveContainer("c-0"), RemoveContainer("c-1")}


def test_a_created_container_is_started_without_a_new_attempt() -> None:
    assert starts(plan(a_view(a_pod(), a_container(phase=ContainerPhase.CREATED)), NOW)) == [("c", 0)]


def test_a_pod_whose_containers_were_lost_continues_its_restart_count() -> None:
    pod = a_pod()
    running = {"running": {"startedAt": "2024-01-01T00:00:00Z"}}
    old = {
        **pod["status"],
        "containerStatuses": [{"name": "c", "restartCount": 4, "state": running, "containerID": "r://x"}],
    }
    view = a_view(pod, old=old)
    assert starts(plan(view, NOW)) == [("c", 5)]
    status = status_of(view, {}, "r", NOW)["containerStatuses"][0]
    assert status["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert status["restartCount"] == 5


@pytest.mark.parametrize("why", ["deleted", "failure", "failed"])
def test_an_ending_pod_starts_nothing_and_is_stopped_in_order(why: str) -> None:
    pod = a_pod("a", "b")
    more: dict[str, Any] = {}
    if why == "deleted":
        pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    elif why == "failure":
        more["failure"] = PodFailure("Evicted", "low")
    else:
        pod["status"]["phase"] = "Failed"
    assert plan(a_view(pod, a_container("a"), **more), NOW).actions == (Terminate(),)
    ended = a_container("a", ContainerPhase.EXITED, 143)
    assert plan(a_view(pod, ended, **more), NOW).actions == (StopSandbox("s"), Finish())
    stopped = replace(SANDBOX, ready=False)
    assert plan(a_view(pod, ended, sandbox=stopped, **more), NOW).actions == (Finish(),)


def test_a_failed_start_is_retried_after_its_backoff() -> None:
    wait = ContainerWait("ErrImagePull", "no such image")
    view = a_view(a_pod(), waits={"c": wait}, retry_at={"c": NOW + 10})
    decision = plan(view, NOW)
    assert (decision.actions, decision.recheck_at, decision.waits) == ((), NOW + 10, {"c": wait})
    assert starts(plan(view, NOW + 10)) == [("c", 0)]


class PodSimulation:
    """Carries out every decision at once. The test decides when containers exit."""

    def __init__(self, pod: dict[str, Any]) -> None:
        self.pod, self.old, self.now = pod, pod["status"], NOW
        self.sandbox: Sandbox | None = None
        self.containers: dict[str, Container] = {}
        self.finished = False

    def view(self) -> PodView:
        return a_view(self.pod, *self.containers.values(), sandbox=self.sandbox, old=self.old)

    def settle(self) -> None:
        for _ in range(60):
            decision = plan(self.view(), self.now)
            before, self.old = self.old, status_of(self.view(), decision.waits, "r", self.now)
            self.check(before, self.old)
            if not decision.actions or self.finished:
                return
            for action in decision.actions:
                self.do(action)
            if isinstance(decision.actions[-1], Finish):
                return
        raise AssertionError("the plan never comes to rest")

    def do(self, action: Any) -> None:
        match action:
            case CreateSandbox(attempt):
                self.sandbox = replace(SANDBOX, id=f"s{attempt}", attempt=attempt)
            case StopSandbox():
                assert self.sandbox is not None
                self.sandbox = replace(self.sandbox, ready=False, addresses=())
            case StartContainer(name=name, attempt=attempt, crashes=crashes):
                assert self.sandbox is not None
                assert not [c for c in self.containers.values() if c.name == name and c.phase is ContainerPhase.RUNNING]
                made = a_container(name, attempt=attempt, sandbox_id=self.sandbox.id, started_at=self.now)
                key = f"{name}-{self.sandbox.id}-{attempt}"
                assert key not in self.containers
                self.containers[key] = replace(made, id=key, created_at=self.now, labels={CRASHES_LABEL: str(crashes)})
            case RemoveContainer(key):
                del self.containers[key]
            case KillContainer(container_id=key):
                self.end(key, 137)
            case Terminate():
                for key in list(self.containers):
                    self.end(key, 143)
            case Finish():
                self.finished = bool(self.pod["metadata"].get("deletionTimestamp"))

    def end(self, key: str, code: int) -> None:
        found = self.containers[key]
        if found.phase is ContainerPhase.RUNNING:
            self.containers[key] = replace(found, phase=ContainerPhase.EXITED, finished_at=self.now, exit_code=code)

    def check(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        if before.get("phase") in ("Succeeded", "Failed"):
            assert after["phase"] == before["phase"]
        counts = {each["name"]: each["restartCount"] for each in before.get("containerStatuses") or ()}
        for each in after["containerStatuses"]:
            assert each["restartCount"] >= counts.get(each["name"], 0)
        mains = {each["name"] for each in self.pod["spec"]["containers"]}
        running = {c.name for c in self.containers.values() if c.phase is ContainerPhase.RUNNING}
        plain = {each["name"] for each in self.pod["spec"].get("initContainers") or () if "restartPolicy" not in each}
        assert not (running & mains and running & plain), "a main container runs before initialization is over"
        ready = conditions(after)["Ready"] == "True"
        assert not ready or mains <= running


steps = st.lists(
    st.one_of(
        st.tuples(st.just("exit"), st.integers(0, 5), st.integers(0, 2)),
        st.tuples(st.just("pass"), st.integers(0, 400), st.just(0)),
        st.tuples(st.just("sandbox"), st.just(0), st.just(0)),
        st.tuples(st.just("delete"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@given(
    steps, st.sampled_from(["Always", "OnFailure", "Never"]), st.integers(0, 2), st.integers(0, 1), st.integers(1, 2)
)
@settings(max_examples=250)
def test_the_rules_hold_after_any_events_and_a_deleted_pod_ends(
    events: list[tuple[str, int, int]], policy: str, inits: int, sidecars: int, mains: int
) -> None:
    names = lambda prefix, count: tuple(f"{prefix}{number}" for number in range(count))  # noqa: E731
    pod = a_pod(*names("m", mains), inits=names("i", inits), sidecars=names("s", sidecars), restartPolicy=policy)
    simulation = PodSimulation(pod)
    simulation.settle()
    for what, one, two in events:
        running = sorted(key for key, each in simulation.containers.items() if each.phase is ContainerPhase.RUNNING)
        if what == "exit" and running:
            simulation.end(running[one % len(running)], two)
        elif what == "pass":
            simulation.now += one
        elif what == "sandbox" and simulation.sandbox is not None:
            for key in running:
                simulation.end(key, 137)
            simulation.sandbox = replace(simulation.sandbox, ready=False, addresses=())
        elif what == "delete":
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
        simulation.settle()
    pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    simulation.settle()
    assert simulation.finished
    assert not [each for each in simulation.containers.values() if each.phase is ContainerPhase.RUNNING]
