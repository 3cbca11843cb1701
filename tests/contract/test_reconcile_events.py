"""The event recorder on a real server, in both APIs: repeats are counted, floods are muted, recording never waits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from shoal.base.clock import FakeClock
from shoal.client import Scope, builtin
from shoal.kube.objects import Obj
from shoal.reconcile import EventRecorder, EventType, RecorderConfig

EVENTS = builtin("events")


def pod(cluster, name: str = "p") -> Obj:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": cluster.namespace, "uid": "u1"}}


def recorder(cluster, clock: FakeClock, **config) -> EventRecorder:
    numbers = iter(range(10**6))
    return EventRecorder(
        cluster.client(), "example.com/tester", "tester-1", clock=clock, new_suffix=lambda: f"s{next(numbers)}",
        config=RecorderConfig(**config),
    )  # fmt: skip


@asynccontextmanager
async def running(events: EventRecorder):
    task = asyncio.create_task(events.run(), name="events")
    try:
        yield
        events.stop()
        async with asyncio.timeout(10):
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def written(cluster) -> list[Obj]:
    return (await cluster.client().of(EVENTS).list(Scope(namespace=cluster.namespace))).items


async def until_written(cluster, reason: str, count: int = 1) -> None:
    """Return when so many events of this reason have been created."""
    async with asyncio.timeout(10):
        async with await cluster.client().of(EVENTS).watch(Scope(namespace=cluster.namespace)) as watch:
            async for event in watch:
                count -= event.type == "ADDED" and event.object["reason"] == reason
                if count == 0:
                    return


@pytest.fixture(params=[False, True], ids=["core", "events.k8s.io"])
def new_api(request: pytest.FixtureRequest) -> bool:
    return request.param


async def test_an_event_names_the_object_and_the_reason(api, clock: FakeClock, new_api: bool) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock, new_api=new_api)
        async with running(events):
            events.record(pod(cluster), EventType.WARNING, "Failed", "it broke", action="Starting")
        [event] = await written(cluster)
        assert event["involvedObject"] == {
            "apiVersion": "v1", "kind": "Pod", "namespace": cluster.namespace, "name": "p", "uid": "u1",
        }  # fmt: skip
        assert (event["type"], event["reason"], event["message"]) == ("Warning", "Failed", "it broke")
        assert event["reportingComponent"] == "example.com/tester"
        assert events.failed == 0


async def test_repeats_become_a_count(api, clock: FakeClock, new_api: bool) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock, new_api=new_api)
        async with running(events):
            for _ in range(3):
                events.record(pod(cluster), EventType.NORMAL, "Pulled", "image is there")
                await clock.advance(60)
            events.record(pod(cluster), EventType.NORMAL, "Started", "runs")
        found = {event["reason"]: event for event in await written(cluster)}
        assert set(found) == {"Pulled", "Started"}
        count = found["Pulled"]["series"]["count"] if new_api else found["Pulled"]["count"]
        assert count == 3
        assert events.failed == 0


async def test_a_repeat_after_a_long_pause_or_an_expired_event_begins_again(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock, series_s=600.0)
        async with running(events):
            events.record(pod(cluster), EventType.NORMAL, "Pulled", "image is there")
            await clock.advance(601)
            events.record(pod(cluster), EventType.NORMAL, "Pulled", "image is there")
            await until_written(cluster, "Pulled", 2)
            await cluster.client().of(EVENTS).delete_collection(Scope(namespace=cluster.namespace))
            events.record(pod(cluster), EventType.NORMAL, "Pulled", "image is there")
        [event] = await written(cluster)
        assert event["count"] == 1


async def test_recording_never_waits_and_the_oldest_go_first(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock, queue=5)
        for number in range(12):
            events.record(pod(cluster), EventType.NORMAL, f"Reason{number}", "x")
        assert events.dropped == 7
        async with running(events):
            pass
        assert {event["reason"] for event in await written(cluster)} == {f"Reason{number}" for number in range(7, 12)}
        events.record(pod(cluster), EventType.NORMAL, "Late", "after the end")
        assert events.failed == 1


async def test_an_object_that_causes_too_many_is_muted_for_a_while(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock, burst=3, refill_s=300.0)
        async with running(events):
            for number in range(10):
                events.record(pod(cluster), EventType.NORMAL, f"Reason{number}", "x")
            events.record(pod(cluster, "other"), EventType.NORMAL, "Quiet", "x")
            await until_written(cluster, "Quiet")
            await clock.advance(300)
            events.record(pod(cluster), EventType.NORMAL, "Again", "x")
        reasons = {event["reason"] for event in await written(cluster)}
        assert reasons == {"Reason0", "Reason1", "Reason2", "Quiet", "Again"}
        assert events.muted == 7


async def test_objects_of_the_whole_cluster_have_their_events_in_default(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock)
        name = f"node-{cluster.namespace}"
        async with running(events):
            events.record({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}, EventType.NORMAL, "Up", "x")
        listed = (
            await cluster.client()
            .of(EVENTS)
            .list(Scope(namespace="default", field_selector=f"involvedObject.name={name}"))
        )
        assert [event["reason"] for event in listed.items] == ["Up"]


async def test_long_messages_are_cut_not_refused(api, clock: FakeClock, new_api: bool) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock, new_api=new_api)
        async with running(events):
            events.record(pod(cluster), EventType.NORMAL, "Long", "ü" * 2000)
        [event] = await written(cluster)
        assert event["message"].endswith("...")
        assert events.failed == 0


async def test_events_have_names_in_the_order_of_time_and_the_component_they_come_from(api, clock: FakeClock) -> None:
    async with api.opened(clock=clock) as cluster:
        events = recorder(cluster, clock)
        other = events.named("example.com/other")
        async with running(events):
            for number in range(12):
                (other if number % 2 else events).record(pod(cluster), EventType.NORMAL, "Step", f"step {number}")
                await clock.advance(0.001)
        found = sorted(await written(cluster), key=lambda event: event["metadata"]["name"])
        assert [event["message"] for event in found] == [f"step {number}" for number in range(12)]
        assert [event["source"]["component"] for event in found[:2]] == ["example.com/tester", "example.com/other"]
