"""Silent pods leave their Service while another one serves, and come back when they are heard."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from shoal.base.clock import FakeClock
from shoal.client import Client
from shoal.krane.labels import SERVING
from shoal.krane.sentinels.serving import (
    DRAIN_S,
    LOOK_S,
    OUT,
    SERVES,
    GatewayPodFacts,
    ServingPods,
    demands_label,
    out_of_service,
)


def facts(name: str, **given_: Any) -> GatewayPodFacts:
    usual = {"is_ready": True, "is_out": False, "is_stale": False, "is_heard": True, "has_judged": True}
    return GatewayPodFacts(name=name, uid=f"uid-{name}", sentinel="snt_1", **{**usual, **given_})


SILENT = {"is_stale": True, "is_heard": False, "has_judged": False}


def test_a_silent_pod_is_taken_out_while_another_one_serves() -> None:
    assert out_of_service([facts("a"), facts("b", **SILENT)]) == {"b"}
    assert out_of_service([facts("a", is_ready=False), facts("b", **SILENT)]) == set()
    assert out_of_service([facts("b", **SILENT)]) == set()
    assert out_of_service([facts("a", **SILENT), facts("b", **SILENT)]) == set(), "the last ones stay"
    assert out_of_service([facts("a", is_heard=False), facts("b", **SILENT)]) == set(), "it may be silent too"


def test_it_stays_out_until_it_is_heard_and_comes_back_when_no_other_serves() -> None:
    waits = facts("b", is_out=True, is_heard=False)
    assert out_of_service([facts("a", is_heard=False), waits]) == {"b"}, "an agent that has just started heard none"
    assert out_of_service([facts("a"), facts("b", is_out=True, has_judged=False)]) == {"b"}, "its routes may be old"
    assert out_of_service([facts("a"), facts("b", is_out=True)]) == set()
    assert out_of_service([facts("a", is_ready=False), waits]) == set()


_pods = st.builds(
    facts, st.integers(0, 5).map(str),
    is_ready=st.booleans(), is_out=st.booleans(), is_stale=st.booleans(), is_heard=st.booleans(),
    has_judged=st.booleans(),
)  # fmt: skip


@given(st.lists(_pods, unique_by=lambda pod: pod.name))
def test_whenever_one_is_out_another_is_ready_and_heard(pods: list[GatewayPodFacts]) -> None:
    out = out_of_service(pods)
    left = [pod for pod in pods if pod.name not in out]
    assert not out or any(pod.is_ready and not pod.is_stale for pod in left)
    newly = [pod for pod in pods if pod.name in out and not pod.is_out]
    assert not newly or any(pod.is_ready and pod.is_heard and not pod.is_stale for pod in left)
    assert all(pod.is_stale or pod.is_out for pod in pods if pod.name in out)


class Pods:
    """Pods of one sentinel as an agent sees and labels them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.labels = {"a": SERVES, "b": SERVES}
        self.silent: set[str] = set()
        self.told: list[str] = []
        self.serving = ServingPods(
            cast(Client, self),  # it is asked to label pods only
            clock=self.clock, facts=self.facts, pods=self.objects, changed=self.told.append,
        )  # fmt: skip

    def facts(self) -> list[GatewayPodFacts]:
        return [
            facts(name, is_out=value == OUT, is_stale=name in self.silent, is_heard=name not in self.silent)
            for name, value in self.labels.items()
        ]

    def objects(self) -> list[dict[str, Any]]:
        return [{"metadata": {"name": name, "labels": {SERVING: value}}} for name, value in self.labels.items()]

    def of(self, _: Any) -> Pods:
        return self

    async def apply(self, wanted: dict[str, Any], **_: Any) -> None:
        about = wanted["metadata"]
        assert about["uid"] == f"uid-{about['name']}", "never creates a pod"
        self.labels[about["name"]] = about["labels"][SERVING]

    async def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / LOOK_S)):
            await self.clock.advance(LOOK_S)
            await self.serving.look()


async def test_routes_wait_for_a_pod_until_it_was_out_for_the_time_that_connections_need() -> None:
    pods = Pods()
    await pods.wait(LOOK_S)
    assert pods.told == []
    pods.silent = {"b"}
    await pods.wait(LOOK_S)
    assert pods.labels == {"a": SERVES, "b": OUT} and pods.told == ["b"] and not pods.serving.drained
    await pods.wait(DRAIN_S - LOOK_S)
    assert not pods.serving.drained
    await pods.wait(LOOK_S)
    assert pods.serving.drained == {"b"} and pods.told == ["b", "b"]
    pods.silent = set()
    await pods.wait(LOOK_S)
    assert pods.labels["b"] == SERVES and not pods.serving.drained and pods.told == ["b", "b", "b"]


def test_a_service_of_an_earlier_version_leads_to_all_pods() -> None:
    assert not demands_label({"spec": {"selector": {"app": "x"}}})
    assert demands_label({"spec": {"selector": {SERVING: SERVES}}})
