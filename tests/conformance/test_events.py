"""Events in both groups: one storage, two spellings."""

from __future__ import annotations

from typing import Any

from conformance_api import Api, conformance, unique

from shoal.kube.objects import Obj


def core_event(name: str, namespace: str, label: str) -> Obj:
    return {
        "metadata": {"name": name, "labels": {"testevent-constant": label}},
        "message": "This is a test event",
        "reason": "Test",
        "type": "Normal",
        "count": 1,
        "involvedObject": {"namespace": namespace},
    }


def new_event(name: str, namespace: str, label: str) -> Obj:
    return {
        "metadata": {"name": name, "labels": {"testevent-constant": label}},
        "eventTime": "2017-09-19T13:49:16.000000Z",
        "note": f"This is {name}",
        "reason": "Test",
        "action": "Do",
        "type": "Normal",
        "reportingController": "test-controller",
        "reportingInstance": "test-node",
        "regarding": {"namespace": namespace},
    }


@conformance("[sig-instrumentation] Events should manage the lifecycle of an event [Conformance]")
def test_core_event_lifecycle(api: Api, namespace: str) -> None:
    events, run = api.of("v1", "events", namespace), unique("run")
    created = events.create(core_event("event", namespace, run))
    everywhere = api.of("v1", "events")
    assert everywhere.names(f"testevent-constant={run}") == ["event"]

    patched = events.patch("event", {"message": "This is a test event - patched"}, "strategic")
    assert int(patched["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert events.get("event")["message"] == "This is a test event - patched"

    updated = events.update("event", lambda obj: obj.update(series={"count": 100, "lastObservedTime": TIME}))
    assert updated["series"]["count"] == 100
    assert updated["message"] == "This is a test event - patched"
    assert events.get("event")["series"]["lastObservedTime"] == TIME
    events.delete("event")
    assert everywhere.names(f"testevent-constant={run}") == []


TIME = "2020-01-02T03:04:05.600000Z"


@conformance("[sig-instrumentation] Events should delete a collection of events [Conformance]")
def test_core_event_collection(api: Api, namespace: str) -> None:
    check_collection(api, namespace, "v1", core_event)


@conformance("[sig-instrumentation] Events API should delete a collection of events [Conformance]")
def test_new_event_collection(api: Api, namespace: str) -> None:
    check_collection(api, namespace, "events.k8s.io/v1", new_event)


def check_collection(api: Api, namespace: str, group_version: str, make: Any) -> None:
    events, run = api.of(group_version, "events", namespace), unique("run")
    for number in range(3):
        events.create(make(f"test-event-{number}", namespace, run))
    assert len(events.items(f"testevent-constant={run}")) == 3
    events.delete_collection(f"testevent-constant={run}")
    assert events.items(f"testevent-constant={run}") == []


@conformance(
    "[sig-instrumentation] Events API should ensure that an event can be fetched, patched, deleted, and listed"
    " [Conformance]"
)
def test_new_event_lifecycle(api: Api, namespace: str) -> None:
    events, run = api.of("events.k8s.io/v1", "events", namespace), unique("run")
    core = api.of("v1", "events", namespace)
    created = events.create(new_event("event-test", namespace, run))
    assert api.of("events.k8s.io/v1", "events").names(f"testevent-constant={run}") == ["event-test"]
    assert events.names(f"testevent-constant={run}") == ["event-test"]
    for selector in ("reportingController=test-controller", f"metadata.namespace={namespace},reason=Test"):
        assert events.names(fields=selector) == ["event-test"]
        assert core.names(fields=selector.replace("reportingController", "reportingComponent")) == ["event-test"]
    assert events.names(fields="reportingController=another") == []

    fetched = events.get("event-test")
    assert fetched["eventTime"] == created["eventTime"] == "2017-09-19T13:49:16.000000Z"
    patched = events.patch("event-test", {"series": {"count": 2, "lastObservedTime": TIME}}, "strategic")
    assert patched["series"] == {"count": 2, "lastObservedTime": TIME}
    updated = events.update("event-test", lambda obj: obj["series"].update(count=100))
    assert updated["series"]["count"] == 100
    assert core.get("event-test")["message"] == "This is event-test"
    events.delete("event-test")
    assert core.is_gone("event-test")
    assert api.of("events.k8s.io/v1", "events").names(f"testevent-constant={run}") == []
