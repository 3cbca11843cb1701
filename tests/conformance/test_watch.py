"""Watches: who sees what, from where, and in which order."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from conformance_api import Api, conformance, unique

from shoal.kube.objects import Obj

LABEL = "watch-this-configmap"


def configmap(name: str, value: str) -> Obj:
    return {"metadata": {"name": name, "labels": {LABEL: value}}}


def data(value: str) -> Obj:
    return {"data": {"mutation": value}}


@conformance(
    "[sig-api-machinery] Watchers should observe add, update, and delete watch notifications on configmaps"
    " [Conformance]"
)
def test_watchers_see_exactly_their_objects(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    start = maps.list()
    with (
        maps.watch(f"{LABEL} in (a)", after=start) as only_a,
        maps.watch(f"{LABEL} in (b)", after=start) as only_b,
        maps.watch(f"{LABEL} in (a,b)", after=start) as either,
    ):
        steps = [
            ("ADDED", maps.create(configmap("map-a", "a"))),
            ("MODIFIED", maps.patch("map-a", data("1"))),
            ("MODIFIED", maps.patch("map-a", data("2"))),
        ]
        maps.delete("map-a")
        for watch in (only_a, either):
            for kind, obj in steps:
                assert watch.expect(kind) == obj
            watch.expect("DELETED", "map-a")
        created = maps.create(configmap("map-b", "b"))
        maps.delete("map-b")
        for watch in (only_b, either):
            assert watch.expect("ADDED") == created
            watch.expect("DELETED", "map-b")
        for watch in (only_a, only_b, either):
            watch.silent()


@conformance(
    "[sig-api-machinery] Watchers should be able to start watching from a specific resource version [Conformance]"
)
def test_watch_from_a_resource_version_sees_what_came_after(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    maps.create(configmap("map", "from-version"))
    first = maps.patch("map", data("1"))
    second = maps.patch("map", data("2"))
    maps.delete("map")
    with maps.watch(f"{LABEL}=from-version", after=first) as watch:
        assert watch.expect("MODIFIED") == second
        watch.expect("DELETED", "map")
        watch.silent()


@conformance(
    "[sig-api-machinery] Watchers should be able to restart watching from the last resource version observed by the"
    " previous watch [Conformance]"
)
def test_watch_restarts_where_the_last_one_ended(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    with maps.watch(f"{LABEL}=restarted", after=maps.list()) as watch:
        maps.create(configmap("map", "restarted"))
        maps.patch("map", data("1"))
        watch.expect("ADDED", "map")
        last = watch.expect("MODIFIED", "map")
    second = maps.patch("map", data("2"))
    maps.delete("map")
    with maps.watch(f"{LABEL}=restarted", after=last) as watch:
        assert watch.expect("MODIFIED") == second
        watch.expect("DELETED", "map")


@conformance(
    "[sig-api-machinery] Watchers should observe an object deletion if it stops meeting the requirements of the"
    " selector [Conformance]"
)
def test_leaving_the_selector_is_a_deletion(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    with maps.watch(f"{LABEL} in (mine)", after=maps.list()) as watch:
        created = maps.create(configmap("map", "mine"))
        first = maps.patch("map", data("1"))
        maps.patch("map", {"metadata": {"labels": {LABEL: "wrong"}}})
        assert watch.expect("ADDED") == created
        assert watch.expect("MODIFIED") == first
        watch.expect("DELETED", "map")

        maps.patch("map", data("2"))
        watch.silent()

        restored = maps.patch("map", {"metadata": {"labels": {LABEL: "mine"}}})
        third = maps.patch("map", data("3"))
        maps.delete("map")
        assert watch.expect("ADDED") == restored
        assert watch.expect("MODIFIED") == third
        watch.expect("DELETED", "map")


@conformance("[sig-api-machinery] Watchers should receive events on concurrent watches in same order [Conformance]")
def test_concurrent_watches_agree_on_the_order(api: Api, namespace: str) -> None:
    maps = api.of("v1", "configmaps", namespace)
    revision = maps.list()["metadata"]["resourceVersion"]
    stop = threading.Event()

    def produce() -> None:
        known: list[str] = []
        step = 0
        while not stop.wait(0.002):
            step += 1
            if not known or step % 3 == 0:
                known.append(maps.create({"metadata": {"name": unique("map")}})["metadata"]["name"])
            elif step % 3 == 1:
                maps.patch(known[-1], data(str(step)))
            else:
                maps.delete(known.pop(0))

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    try:
        with ExitStack() as open_watches:
            watches = []
            for _ in range(40):
                watches.append(open_watches.enter_context(maps.watch(after=revision)))
                revision = watches[0].next()["object"]["metadata"]["resourceVersion"]
                for watch in watches[1:]:
                    assert watch.next()["object"]["metadata"]["resourceVersion"] == revision
    finally:
        stop.set()
        producer.join()
