"""The plan and the status of a pod: pure functions, tried on tables and on a whole small world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from shoal.node.pods.restarts import CRASHES_LABEL, backoff_s, hash_of, restarts
from shoal.node.pods.status import status_of
from shoal.node.probes.model import Probed
from shoal.node.runtime.model import Container, ContainerPhase, Sandbox

NOW = 1_700_000_000.0
SANDBOX = Sandbox(
    id="s", pod_uid="u", namespace="default", name="p", attempt=0, ready=True, addresses=("10.0.0.9",), created_at=NOW
)


def a_pod(*containers: str, inits: tuple[str, ...] = (), sidecars: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    mains = [{"name": name, "image": f"{name}:1"} for name in containers or ("c",)]
    init = [{"name": name, "image": f"{name}:1"} for name in inits]
    init += [{"name": name, "image": f"{name}:1", "restartPolicy": "Always"} for name in sidecars]
    made = {"containers": mains, **({"initContainers": init} if init else {}), **spec}
    about = {"name": "p", "namespace": "default", "uid": "u", "generation": 1}
    return {"metadata": about, "spec": made, "status": {"phase": "Pending", "qosClass": "BestEffort"}}


def a_container(
    name: str = "c", phase: ContainerPhase = ContainerPhase.RUNNING, code: int = 0, **more: Any
) -> Container:
    made = Container(
        id=f"{name}-{more.get('attempt', 0)}", sandbox_id="s", pod_uid="u", name=name, attempt=0, phase=phase,
        image_id="i", image_reference=f"{name}:1", created_at=NOW, hash=hash_of({"name": name, "image": f"{name}:1"}),
    )  # fmt: skip
    if phase is not ContainerPhase.CREATED:
        made = replace(made, started_at=NOW)
    if phase is ContainerPhase.EXITED:
        made = replace(made, finished_at=NOW, exit_code=code)
    return replace(made, **more)


def a_view(pod: dict[str, Any], *containers: Container, **more: Any) -> PodView:
    return PodView(
        **{
            "pod": pod,
            "old": pod["status"],
            "sandbox": SANDBOX,
            "containers": containers,
            "started_at": NOW,
            "host_addresses": ("192.0.2.1",),
            **more,
        }  # fmt: skip
    )


def starts(decision: PodDecision) -> list[tuple[str, int]]:
    return [(each.name, each.attempt) for each in decision.actions if isinstance(each, StartContainer)]


@pytest.mark.parametrize(
    "containers",
    [
        (a_container(),),
        (a_container(phase=ContainerPhase.EXITED),),
        (a_container(phase=ContainerPhase.EXITED, code=3),),
        (a_container(phase=ContainerPhase.EXITED, code=1), a_container(phase=ContainerPhase.EXITED, attempt=1)),
        (a_container(phase=ContainerPhase.EXITED, code=1), a_container(attempt=1)),
        (a_container(phase=ContainerPhase.EXITED, attempt=2),),
    ],
)
def test_a_status_is_the_same_when_nothing_has_changed(containers: tuple[Container, ...]) -> None:
    pod = a_pod(restartPolicy="Never")
    first = status_of(a_view(pod, *containers), {}, "process", NOW)
    second = status_of(a_view({**pod, "status": first}, *containers), {}, "process", NOW + 5)
    assert second == first
    assert status_of(a_view({**pod, "status": second}, *containers), {}, "process", NOW + 9) == first


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


def test_init_containers_go_one_by_one_and_main_ones_together() -> None:
    pod = a_pod("a", "b", inits=("first", "second"))
    assert starts(plan(a_view(pod), NOW)) == [("first", 0)]
    assert starts(plan(a_view(pod, a_container("first")), NOW)) == []
    done = a_container("first", ContainerPhase.EXITED)
    assert starts(plan(a_view(pod, done), NOW)) == [("second", 0)]
    assert starts(plan(a_view(pod, done, a_container("second", ContainerPhase.EXITED)), NOW)) == [("a", 0), ("b", 0)]


def test_what_follows_a_sidecar_waits_for_its_start() -> None:
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
def test_restart_policies(policy: str, code: int, again: bool) -> None:
    view = a_view(a_pod(restartPolicy=policy), a_container(phase=ContainerPhase.EXITED, code=code))
    assert starts(plan(view, NOW)) == ([("c", 1)] if again else [])
    assert (StopSandbox("s") in plan(view, NOW).actions) is not again


def test_restart_rules_of_a_container_come_before_its_policy() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    container = {"name": "c", "restartPolicy": "Never", "restartPolicyRules": rules}
    pod = a_pod(restartPolicy="Never")
    assert restarts(container, ContainerRole.MAIN, pod, 42)
    assert not restarts(container, ContainerRole.MAIN, pod, 1)


def test_an_init_container_that_fails_for_good_ends_the_pod() -> None:
    pod = a_pod(inits=("init",), restartPolicy="Never")
    view = a_view(pod, a_container("init", ContainerPhase.EXITED, 1))
    assert plan(view, NOW).actions == (Terminate(), StopSandbox("s"))
    assert status_of(view, {}, "r", NOW)["phase"] == "Failed"


@pytest.mark.parametrize(("crashes", "wait_s"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (30, 300)])
def test_crashes_make_the_wait_longer(crashes: int, wait_s: float) -> None:
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


def test_ten_minutes_of_running_wipe_the_crashes_out() -> None:
    container = a_container(phase=ContainerPhase.EXITED, code=1, labels={CRASHES_LABEL: "6"}, started_at=NOW - 600)
    (start,) = plan(a_view(a_pod(), container), NOW).actions
    assert isinstance(start, StartContainer) and start.crashes == 1


@pytest.mark.parametrize("probe", ["liveness", "startup"])
def test_a_failed_probe_kills(probe: str) -> None:
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


def test_a_container_that_was_made_and_not_started_is_started_as_it_is() -> None:
    assert starts(plan(a_view(a_pod(), a_container(phase=ContainerPhase.CREATED)), NOW)) == [("c", 0)]


def test_one_whose_containers_were_lost_counts_on() -> None:
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
def test_a_pod_that_ends_starts_nothing_and_is_taken_down_in_order(why: str) -> None:
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


def test_a_failed_start_is_held_until_its_time() -> None:
    wait = ContainerWait("ErrImagePull", "no such image")
    view = a_view(a_pod(), waits={"c": wait}, retry_at={"c": NOW + 10})
    decision = plan(view, NOW)
    assert (decision.actions, decision.recheck_at, decision.waits) == ((), NOW + 10, {"c": wait})
    assert starts(plan(view, NOW + 10)) == [("c", 0)]


# status


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in status["conditions"]}


@pytest.mark.parametrize(
    ("policy", "codes", "phase"),
    [
        ("Always", (0, 0), "Running"), ("OnFailure", (0, 0), "Succeeded"), ("OnFailure", (0, 1), "Running"),
        ("Never", (0, 0), "Succeeded"), ("Never", (0, 1), "Failed"),
    ],
)  # fmt: skip
def test_phases_of_ended_pods(policy: str, codes: tuple[int, int], phase: str) -> None:
    pod = a_pod("a", "b", restartPolicy=policy)
    view = a_view(
        pod, a_container("a", ContainerPhase.EXITED, codes[0]), a_container("b", ContainerPhase.EXITED, codes[1])
    )
    assert status_of(view, {}, "r", NOW)["phase"] == phase


def test_a_running_pod_is_ready_with_its_addresses() -> None:
    status = status_of(a_view(a_pod(), a_container()), {}, "r", NOW)
    assert status["phase"] == "Running"
    assert set(conditions(status).values()) == {"True"}
    assert (status["podIP"], status["hostIP"]) == ("10.0.0.9", "192.0.2.1")
    container = status["containerStatuses"][0]
    assert container["containerID"] == "r://c-0" and container["ready"] and container["started"]


def test_a_pod_with_init_containers_says_that_it_initializes() -> None:
    status = status_of(a_view(a_pod(inits=("init",)), a_container("init")), {}, "r", NOW)
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status["phase"] == "Pending"
    initialized = next(each for each in status["conditions"] if each["type"] == "Initialized")
    assert initialized["reason"] == "ContainersNotInitialized"
    assert initialized["message"] == "containers with incomplete status: [init]"


def test_conditions_of_others_stay_and_times_change_only_with_the_value() -> None:
    pod = a_pod(readinessGates=[{"conditionType": "x/y"}])
    gate = {"type": "x/y", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    pod["status"]["conditions"] = [gate]
    first = status_of(a_view(pod, a_container()), {}, "r", NOW)
    assert gate in first["conditions"]
    ready = next(each for each in first["conditions"] if each["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    again = status_of(a_view(pod, a_container(), old=first), {}, "r", NOW + 100)
    assert again == first


def test_an_ended_phase_is_never_left() -> None:
    pod = a_pod()
    old = {**pod["status"], "phase": "Failed", "reason": "Evicted", "message": "low"}
    status = status_of(a_view(pod, a_container(), old=old), {}, "r", NOW)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "low")


def test_a_pod_that_was_refused_has_a_short_status() -> None:
    failure = PodFailure("OutOfcpu", "Pod was rejected: full", rejected=True)
    status = status_of(a_view(a_pod(), sandbox=None, failure=failure), {}, "r", NOW)
    assert status == {
        "qosClass": "BestEffort", "observedGeneration": 1, "phase": "Failed", "reason": "OutOfcpu",
        "message": "Pod was rejected: full",
    }  # fmt: skip


# a whole world


class World:
    """Carries decisions out at once, and lets containers end as the test wants."""

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
def test_whatever_happens_the_rules_hold_and_a_deleted_pod_ends(
    happenings: list[tuple[str, int, int]], policy: str, inits: int, sidecars: int, mains: int
) -> None:
    names = lambda prefix, count: tuple(f"{prefix}{number}" for number in range(count))  # noqa: E731
    pod = a_pod(*names("m", mains), inits=names("i", inits), sidecars=names("s", sidecars), restartPolicy=policy)
    world = World(pod)
    world.settle()
    for what, one, two in happenings:
        running = sorted(key for key, each in world.containers.items() if each.phase is ContainerPhase.RUNNING)
        if what == "exit" and running:
            world.end(running[one % len(running)], two)
        elif what == "pass":
            world.now += one
        elif what == "sandbox" and world.sandbox is not None:
            for key in running:
                world.end(key, 137)
            world.sandbox = replace(world.sandbox, ready=False, addresses=())
        elif what == "delete":
            pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
        world.settle()
    pod["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    world.settle()
    assert world.finished
    assert not [each for each in world.containers.values() if each.phase is ContainerPhase.RUNNING]
