"""A kopf operator, in a thread: it sees every change, and the cluster keeps what it writes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator
from typing import Any

import kopf
import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from tests.clients.conftest import a_definition, a_widget

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking

# aiohttp, which kopf talks through, leaves TLS connections to be closed by a loop that has ended; that is shown, and
# collected here so that no other test is blamed for it.
pytestmark = pytest.mark.filterwarnings("default::pytest.PytestUnraisableExceptionWarning", "default::ResourceWarning")

MERGE = "application/merge-patch+json"
CLOSING_S = 0.25  # what aiohttp asks callers to wait for its TLS connections to close
_OPERATOR_S = 60.0  # to start and to stop, on a busy machine
FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"


@pytest.fixture
def api(cluster: ServerProcess) -> Iterator[client.ApiClient]:
    made: client.ApiClient
    with config.new_client_from_config(cluster.kubeconfig) as made:
        yield made
        made.rest_client.pool_manager.clear()


@pytest.fixture
def registry(cluster: ServerProcess, monkeypatch: pytest.MonkeyPatch) -> kopf.OperatorRegistry:
    """The registry of a test's handlers; the operator logs in with the cluster's kubeconfig."""
    monkeypatch.setenv("KUBECONFIG", cluster.kubeconfig)
    made = kopf.OperatorRegistry()
    kopf.on.login(registry=made)(kopf.login_with_kubeconfig)
    return made


@contextlib.contextmanager
def running(registry: kopf.OperatorRegistry, namespace: str) -> Iterator[None]:
    """Run the operator inside the block; raise its error at the end."""
    ready, stop = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    async def operator() -> None:
        await kopf.operator(
            registry=registry, namespaces=[namespace], standalone=True, ready_flag=ready, stop_flag=stop
        )
        await asyncio.sleep(CLOSING_S)

    def operate() -> None:
        try:
            asyncio.run(operator())
        except BaseException as error:
            failures.append(error)
            ready.set()

    thread = threading.Thread(target=operate, name="kopf")
    thread.start()
    try:
        assert ready.wait(_OPERATOR_S), "the operator did not start"
        yield
    finally:
        stop.set()
        thread.join(_OPERATOR_S)
        gc.collect()
    assert not thread.is_alive(), "the operator did not stop"
    assert not failures, failures


class Widgets:
    """The custom objects of one test."""

    def __init__(self, api: client.ApiClient, namespace: str, group: str) -> None:
        extensions: Any = client.ApiextensionsV1Api(api)
        extensions.create_custom_resource_definition(a_definition(group, open_status=True))
        self._api: Any = client.CustomObjectsApi(api)
        self._at = (group, "v1", namespace, "widgets")
        self.group = group

    def create(self, name: str, **spec: Any) -> None:
        self._api.create_namespaced_custom_object(*self._at, a_widget(self.group, name, **spec))

    def patch(self, name: str, body: Any) -> None:
        self._api.patch_namespaced_custom_object(*self._at, name, body, _content_type=MERGE)

    def delete(self, name: str) -> None:
        self._api.delete_namespaced_custom_object(*self._at, name)

    def get(self, name: str) -> dict[str, Any]:
        """The object; empty when there is none."""
        try:
            found: dict[str, Any] = self._api.get_namespaced_custom_object(*self._at, name)
        except ApiException as error:
            if error.status != 404:
                raise
            return {}
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(name).get("status") or {}
        return found


@pytest.fixture
def widgets(api: client.ApiClient, namespace: str, group: str) -> Widgets:
    return Widgets(api, namespace, group)


def test_handlers_see_the_life_of_a_custom_object(
    widgets: Widgets, registry: kopf.OperatorRegistry, namespace: str
) -> None:
    on = (widgets.group, "v1", "widgets")
    calls: list[Any] = []

    @kopf.on.create(*on, id="created", registry=registry)
    def created(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> dict[str, Any]:
        calls.append(("create", spec["size"]))
        patch.status["phase"] = "Made"
        return {"size": spec["size"]}

    @kopf.on.update(*on, field="spec.size", registry=registry)
    def resized(old: Any, new: Any, patch: kopf.Patch, **_: Any) -> None:
        calls.append(("update", old, new))
        patch.status["phase"] = "Resized"

    @kopf.on.delete(*on, registry=registry)
    def deleted(name: str, **_: Any) -> None:
        calls.append(("delete", name))

    with running(registry, namespace):
        widgets.create("w", size=1)
        status = eventually_blocking(lambda: widgets.status("w"), until=lambda status: status.get("phase") == "Made")
        assert status["created"] == {"size": 1}  # what a handler returns is kept under its id
        assert widgets.get("w")["metadata"]["finalizers"] == [FINALIZER]
        assert "color" in widgets.get("w")["spec"]
        widgets.patch("w", {"spec": {"size": 2}})
        eventually_blocking(lambda: widgets.status("w"), until=lambda status: status.get("phase") == "Resized")
        widgets.delete("w")
        eventually_blocking(lambda: widgets.get("w"), until=lambda found: not found)
    assert calls == [("create", 1), ("update", 1, 2), ("delete", "w")]


def test_the_finalizer_keeps_an_object_until_its_handler_succeeds(
    widgets: Widgets, registry: kopf.OperatorRegistry, namespace: str
) -> None:
    may_go = threading.Event()
    tried = threading.Event()

    @kopf.on.delete(widgets.group, "v1", "widgets", registry=registry)
    def deleted(**_: Any) -> None:
        tried.set()
        if not may_go.is_set():
            raise kopf.TemporaryError("not yet", delay=0.1)

    with running(registry, namespace):
        widgets.create("w", size=1)
        eventually_blocking(
            lambda: widgets.get("w"), until=lambda found: FINALIZER in found["metadata"].get("finalizers", ())
        )
        widgets.delete("w")
        assert tried.wait(30)
        assert widgets.get("w")["metadata"]["deletionTimestamp"]
        may_go.set()
        eventually_blocking(lambda: widgets.get("w"), until=lambda found: not found)


def test_an_operator_that_starts_later_catches_up(
    widgets: Widgets, registry: kopf.OperatorRegistry, namespace: str
) -> None:
    @kopf.on.resume(widgets.group, "v1", "widgets", registry=registry)
    @kopf.on.create(widgets.group, "v1", "widgets", registry=registry)
    def seen(patch: kopf.Patch, reason: str, **_: Any) -> None:
        patch.status["phase"] = f"seen: {reason}"

    widgets.create("w", size=1)
    with running(registry, namespace):
        eventually_blocking(lambda: widgets.status("w"), until=lambda status: status.get("phase") == "seen: create")
    with running(registry, namespace):
        eventually_blocking(lambda: widgets.status("w"), until=lambda status: status.get("phase") == "seen: resume")


def test_timers_and_daemons_keep_writing_status(
    widgets: Widgets, registry: kopf.OperatorRegistry, namespace: str
) -> None:
    on = (widgets.group, "v1", "widgets")
    ended = threading.Event()

    @kopf.timer(*on, interval=0.2, registry=registry)
    def tick(status: kopf.Status, patch: kopf.Patch, **_: Any) -> None:
        patch.status["replicas"] = status.get("replicas", 0) + 1

    @kopf.daemon(*on, registry=registry)
    async def watch_over(stopped: kopf.DaemonStopped, **_: Any) -> None:
        await stopped.wait(30)
        ended.set()

    with running(registry, namespace):
        widgets.create("w", size=1)
        eventually_blocking(lambda: widgets.status("w"), until=lambda status: status.get("replicas", 0) >= 3)
        widgets.delete("w")
        assert ended.wait(30)
        eventually_blocking(lambda: widgets.get("w"), until=lambda found: not found)


def test_handlers_post_events_about_their_objects(
    api: client.ApiClient, widgets: Widgets, registry: kopf.OperatorRegistry, namespace: str
) -> None:
    core: Any = client.CoreV1Api(api)

    @kopf.on.create(widgets.group, "v1", "widgets", registry=registry)
    def created(body: kopf.Body, **_: Any) -> None:
        kopf.info(body, reason="Noticed", message="hello")
        kopf.warn(body, reason="Worried", message="oh")

    def about(name: str) -> dict[str, Any]:
        selector = f"involvedObject.kind=Widget,involvedObject.name={name}"
        return {event.reason: event for event in core.list_namespaced_event(namespace, field_selector=selector).items}

    with running(registry, namespace):
        widgets.create("w", size=1)
        found = eventually_blocking(lambda: about("w"), until=lambda events: {"Noticed", "Worried"} <= set(events))
    assert found["Noticed"].message == "hello" and found["Noticed"].type == "Normal"
    assert found["Worried"].type == "Warning"
    assert found["Noticed"].involved_object.uid == widgets.get("w")["metadata"]["uid"]


def test_an_operator_makes_and_owns_built_in_objects(
    api: client.ApiClient, widgets: Widgets, registry: kopf.OperatorRegistry, namespace: str
) -> None:
    core: Any = client.CoreV1Api(api)
    marked: list[str] = []

    @kopf.on.create(widgets.group, "v1", "widgets", registry=registry)
    def created(name: str, spec: kopf.Spec, **_: Any) -> None:
        child = {"apiVersion": "v1", "kind": "Secret", "stringData": {"color": spec["color"]}}
        kopf.adopt(child)
        kopf.label(child, {"made-for": name}, nested=[])
        core.create_namespaced_secret(namespace, child)

    @kopf.on.event("", "v1", "secrets", labels={"made-for": kopf.PRESENT}, registry=registry)
    def noticed(name: str, **_: Any) -> None:
        marked.append(name)

    @kopf.on.create("", "v1", "configmaps", labels={"operated": "yes"}, registry=registry)
    def annotated(patch: kopf.Patch, **_: Any) -> None:
        patch.metadata.annotations["touched"] = "yes"

    with running(registry, namespace):
        widgets.create("w", size=1, color="blue")
        (child,) = eventually_blocking(
            lambda: core.list_namespaced_secret(namespace, label_selector="made-for=w").items,
            until=lambda items: items,
        )
        eventually_blocking(lambda: marked, until=lambda names: child.metadata.name in names)
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "c", "labels": {"operated": "yes"}}})
        eventually_blocking(
            lambda: core.read_namespaced_config_map("c", namespace).metadata.annotations or {},
            until=lambda annotations: annotations.get("touched") == "yes",
        )
    (owner,) = child.metadata.owner_references
    assert owner.uid == widgets.get("w")["metadata"]["uid"] and owner.controller is True
