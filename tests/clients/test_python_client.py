"""The official Python client: typed, dynamic, watch and informer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ConflictError, DynamicApiError, NotFoundError, UnprocessibleEntityError
from kubernetes.informer import SharedInformer
from tests.clients.conftest import a_definition, a_deployment, a_widget

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking

MERGE = "application/merge-patch+json"


@pytest.fixture
def api(cluster: ServerProcess) -> Iterator[client.ApiClient]:
    made: client.ApiClient
    with config.new_client_from_config(cluster.kubeconfig) as made:
        yield made
        made.rest_client.pool_manager.clear()  # releases before 37 leave the sockets to the garbage collector


@pytest.fixture
def discovery(api: client.ApiClient, tmp_path: Any) -> dynamic.DynamicClient:
    return dynamic.DynamicClient(api, cache_file=str(tmp_path / "discovery.json"))


def refused(call: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """The status of an answer that must be an error."""
    with pytest.raises(ApiException) as error:
        call(*args, **kwargs)
    status: int = error.value.status
    return status


def test_typed_objects_through_their_life(api: client.ApiClient, namespace: str) -> None:
    core: Any = client.CoreV1Api(api)
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="a", labels={"x": "y"}), data={"k": "1"})
    made = core.create_namespaced_config_map(namespace, body)
    assert made.metadata.uid and made.metadata.creation_timestamp is not None
    assert refused(core.create_namespaced_config_map, namespace, body) == 409
    made.data["k"] = "2"
    assert core.replace_namespaced_config_map("a", namespace, made).data == {"k": "2"}
    assert refused(core.replace_namespaced_config_map, "a", namespace, made) == 409
    patched = core.patch_namespaced_config_map("a", namespace, {"data": {"j": "3"}})
    assert patched.data == {"k": "2", "j": "3"}
    listed = core.list_namespaced_config_map(namespace, label_selector="x=y")
    assert [item.metadata.name for item in listed.items] == ["a"]
    core.delete_namespaced_config_map("a", namespace)
    assert refused(core.read_namespaced_config_map, "a", namespace) == 404


def test_every_kind_of_patch(api: client.ApiClient, namespace: str) -> None:
    apps: Any = client.AppsV1Api(api)
    apps.create_namespaced_deployment(namespace, a_deployment("web"))

    def patch(kind: str, body: Any, **options: Any) -> Any:
        return apps.patch_namespaced_deployment("web", namespace, body, _content_type=kind, **options)

    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "s"}]}}}}
    strategic = patch("application/strategic-merge-patch+json", sidecar)
    assert {c.name for c in strategic.spec.template.spec.containers} == {"c", "sidecar"}
    merged = patch(MERGE, sidecar)
    assert [c.name for c in merged.spec.template.spec.containers] == ["sidecar"]
    operations = [{"op": "add", "path": "/spec/paused", "value": True}]
    assert patch("application/json-patch+json", operations).spec.paused is True
    wanted = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 4}}
    apply = "application/apply-patch+yaml"
    assert refused(patch, apply, wanted, field_manager="me") == 409
    applied = patch(apply, wanted, field_manager="me", force=True)
    assert applied.spec.replicas == 4
    assert ("me", "Apply") in {(entry.manager, entry.operation) for entry in applied.metadata.managed_fields}


def test_typed_deployment_with_scale_and_status(api: client.ApiClient, namespace: str) -> None:
    apps: Any = client.AppsV1Api(api)
    made = apps.create_namespaced_deployment(namespace, a_deployment("web"))
    assert made.spec.replicas == 1 and made.spec.strategy.type == "RollingUpdate"
    scaled = apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 3}})
    assert scaled.spec.replicas == 3
    scale = apps.read_namespaced_deployment_scale("web", namespace)
    scale.spec.replicas = 5
    assert apps.replace_namespaced_deployment_scale("web", namespace, scale).spec.replicas == 5
    apps.patch_namespaced_deployment_status("web", namespace, {"status": {"replicas": 3, "observedGeneration": 2}})
    found = apps.read_namespaced_deployment_status("web", namespace)
    assert found.status.replicas == 3 and found.metadata.generation == 3
    apps.delete_namespaced_deployment("web", namespace)
    assert refused(apps.read_namespaced_deployment, "web", namespace) == 404


def test_new_objects_of_every_workload_can_be_read_typed(api: client.ApiClient, namespace: str) -> None:
    """The client raises an error for a status without the fields that its schema requires."""
    apps: Any = client.AppsV1Api(api)
    autoscaling: Any = client.AutoscalingV1Api(api)
    newer: Any = client.AutoscalingV2Api(api)
    policy: Any = client.PolicyV1Api(api)
    storage: Any = client.StorageV1Api(api)
    spec = a_deployment("a")["spec"]
    named = {"metadata": {"name": "a"}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
    scaler = {**named, "spec": {"scaleTargetRef": reference, "maxReplicas": 2}}
    attachment = {"attacher": "a.example", "nodeName": "n", "source": {"persistentVolumeName": "v"}}
    assert apps.create_namespaced_daemon_set(namespace, {**named, "spec": spec}).status.number_ready == 0
    assert apps.create_namespaced_replica_set(namespace, {**named, "spec": spec}).status.replicas == 0
    made = apps.create_namespaced_stateful_set(namespace, {**named, "spec": {**spec, "serviceName": "a"}})
    assert made.status.available_replicas == 0
    assert autoscaling.create_namespaced_horizontal_pod_autoscaler(namespace, scaler).status.current_replicas == 0
    assert newer.read_namespaced_horizontal_pod_autoscaler("a", namespace).status.desired_replicas == 0
    name = f"{namespace}-a"
    attached = storage.create_volume_attachment({"metadata": {"name": name}, "spec": attachment})
    assert attached.status.attached is False
    budget = policy.create_namespaced_pod_disruption_budget(namespace, {**named, "spec": {"minAvailable": 1}})
    assert budget.status.disruptions_allowed == 0
    for listing in (
        apps.list_namespaced_daemon_set, apps.list_namespaced_replica_set, apps.list_namespaced_stateful_set,
        autoscaling.list_namespaced_horizontal_pod_autoscaler, newer.list_namespaced_horizontal_pod_autoscaler,
    ):  # fmt: skip
        event = next(watch.Watch().stream(listing, namespace, resource_version="0"))
        assert event["object"].metadata.name == "a"


def test_pods_with_every_list_form(api: client.ApiClient, namespace: str) -> None:
    core: Any = client.CoreV1Api(api)
    for index in range(5):
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": f"n{index % 2}"}
        core.create_namespaced_pod(namespace, {"metadata": {"name": f"p{index}"}, "spec": spec})
    on_node = core.list_namespaced_pod(namespace, field_selector="spec.nodeName=n0")
    assert [pod.metadata.name for pod in on_node.items] == ["p0", "p2", "p4"]
    page = core.list_namespaced_pod(namespace, limit=2)
    names = [pod.metadata.name for pod in page.items]
    while page.metadata._continue:
        page = core.list_namespaced_pod(namespace, limit=2, _continue=page.metadata._continue)
        names += [pod.metadata.name for pod in page.items]
    assert names == [f"p{index}" for index in range(5)]
    core.delete_collection_namespaced_pod(namespace, grace_period_seconds=0)
    assert core.list_namespaced_pod(namespace).items == []


def test_errors_carry_the_status_object(api: client.ApiClient, namespace: str) -> None:
    core: Any = client.CoreV1Api(api)
    with pytest.raises(ApiException) as invalid:
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "Not Valid"}})
    status = invalid.value.body or ""
    assert invalid.value.status == 422 and '"field":"metadata.name"' in status and '"reason":"Invalid"' in status
    assert refused(core.read_namespaced_config_map, "absent", namespace) == 404
    assert refused(core.list_namespaced_config_map, namespace, label_selector="!!") == 400


def test_watch_sees_every_change_and_ends_at_its_timeout(api: client.ApiClient, namespace: str) -> None:
    core: Any = client.CoreV1Api(api)
    start = core.list_namespaced_secret(namespace).metadata.resource_version
    core.create_namespaced_secret(namespace, {"metadata": {"name": "a"}})
    for value in ("1", "2"):
        core.patch_namespaced_secret("a", namespace, {"metadata": {"labels": {"v": value}}})
    core.delete_namespaced_secret("a", namespace)
    stream = watch.Watch().stream(core.list_namespaced_secret, namespace, resource_version=start, timeout_seconds=1)
    seen = [(event["type"], (event["object"].metadata.labels or {}).get("v")) for event in stream]
    assert seen == [("ADDED", None), ("MODIFIED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


def test_watch_delivers_while_the_writer_goes_on(api: client.ApiClient, namespace: str) -> None:
    core: Any = client.CoreV1Api(api)
    names = [f"s{index}" for index in range(20)]
    watching = watch.Watch()

    def write() -> None:
        for name in names:
            core.create_namespaced_secret(namespace, {"metadata": {"name": name}})

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    for event in watching.stream(core.list_namespaced_secret, namespace, timeout_seconds=20):
        seen.append(event["object"].metadata.name)
        if len(seen) == len(names):
            watching.stop()
    writer.join()
    assert sorted(seen) == sorted(names)


def test_watch_from_a_future_version_gets_504(api: client.ApiClient, namespace: str) -> None:
    core: Any = client.CoreV1Api(api)
    stream = watch.Watch().stream(
        core.list_namespaced_secret, namespace, resource_version="999999999", timeout_seconds=1
    )
    assert refused(list, stream) == 504


def test_dynamic_client_on_built_in_kinds(discovery: dynamic.DynamicClient, namespace: str) -> None:
    deployments = discovery.resources.get(api_version="apps/v1", kind="Deployment")
    assert deployments.create(a_deployment("web"), namespace=namespace).spec.replicas == 1
    found = deployments.get(name="web", namespace=namespace)
    found.spec.replicas = 2
    assert deployments.replace(found, namespace=namespace).spec.replicas == 2
    with pytest.raises(ConflictError):
        deployments.replace(found, namespace=namespace)
    assert deployments.scale.get(name="web", namespace=namespace).spec.replicas == 2
    deployments.delete(name="web", namespace=namespace)
    with pytest.raises(NotFoundError):
        deployments.get(name="web", namespace=namespace)


def test_dynamic_client_on_custom_resources(discovery: dynamic.DynamicClient, namespace: str, group: str) -> None:
    definitions = discovery.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    definitions.create(a_definition(group))
    widgets = discovery.resources.get(api_version=f"{group}/v1", kind="Widget")
    made = widgets.create(a_widget(group, "w", size=1), namespace=namespace)
    at = {"name": "w", "namespace": namespace}
    applied = widgets.server_side_apply(a_widget(group, "w", size=2), **at, field_manager="m", force_conflicts=True)
    assert applied.spec.size == 2 and applied.spec.color == "red"
    assert widgets.patch({"spec": {"size": 3}}, **at, content_type=MERGE).spec.size == 3
    assert widgets.status.patch({"status": {"phase": "x"}}, **at, content_type=MERGE).status.phase == "x"
    with pytest.raises(UnprocessibleEntityError):
        widgets.patch({"spec": {"size": 100}}, **at, content_type=MERGE)
    with pytest.raises(DynamicApiError) as unsupported:  # the client's default patch is a strategic one
        widgets.patch({"spec": {"size": 4}}, **at)
    assert unsupported.value.status == 415
    assert [item.metadata.name for item in widgets.get(namespace=namespace).items] == ["w"]
    widgets.delete(**at)
    events = widgets.watch(namespace=namespace, resource_version=made.metadata.resourceVersion, timeout=1)
    assert [event["type"] for event in events] == ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    definitions.delete(name=f"widgets.{group}")
    with pytest.raises(NotFoundError):
        eventually_blocking(lambda: widgets.get(namespace=namespace), until=lambda _: False)


def test_typed_custom_objects(api: client.ApiClient, namespace: str, group: str) -> None:
    extensions: Any = client.ApiextensionsV1Api(api)
    made = extensions.create_custom_resource_definition(a_definition(group))
    assert made.spec.names.list_kind == "WidgetList"
    objects: Any = client.CustomObjectsApi(api)
    at = (group, "v1", namespace, "widgets")
    objects.create_namespaced_custom_object(*at, a_widget(group, "w", size=1))
    assert objects.get_namespaced_custom_object(*at, "w")["spec"] == {"size": 1, "color": "red"}
    assert refused(objects.create_namespaced_custom_object, *at, a_widget(group, "v", size=0)) == 422
    objects.patch_namespaced_custom_object_status(*at, "w", {"status": {"phase": "x"}}, _content_type=MERGE)
    assert objects.list_namespaced_custom_object(*at)["items"][0]["status"] == {"phase": "x"}
    objects.delete_namespaced_custom_object(*at, "w")
    assert refused(objects.get_namespaced_custom_object, *at, "w") == 404


def test_create_from_yaml_of_many_kinds(api: client.ApiClient, namespace: str) -> None:
    job = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    for manifest in (
        a_deployment("web"),
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": job},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [rule]},
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}},
    ):  # fmt: skip
        utils.create_from_dict(api, manifest, namespace=namespace)
    leases: Any = client.CoordinationV1Api(api)
    assert leases.read_namespaced_lease("l", namespace).spec.holder_identity == "me"


def test_leader_election_by_lease(api: client.ApiClient, namespace: str) -> None:
    leases: Any = client.CoordinationV1Api(api)
    body = client.V1Lease(metadata=client.V1ObjectMeta(name="leader"), spec=client.V1LeaseSpec(holder_identity="a"))
    first = leases.create_namespaced_lease(namespace, body)
    second = leases.read_namespaced_lease("leader", namespace)
    first.spec.holder_identity, second.spec.holder_identity = "a", "b"
    first.spec.lease_transitions = 1
    leases.replace_namespaced_lease("leader", namespace, first)
    assert refused(leases.replace_namespaced_lease, "leader", namespace, second) == 409
    assert leases.read_namespaced_lease("leader", namespace).spec.holder_identity == "a"


def test_informer_cache_follows_changes(api: client.ApiClient, namespace: str) -> None:
    core: Any = client.CoreV1Api(api)
    core.create_namespaced_secret(namespace, {"metadata": {"name": "early"}})
    # resync_period bounds each watch, and with it how long stop() waits for the one that is open
    informer = SharedInformer(list_func=core.list_namespaced_secret, namespace=namespace, resync_period=1)
    deleted = threading.Event()
    informer.add_event_handler("DELETED", lambda obj: deleted.set())

    def cached() -> dict[str, Any]:
        return {obj.metadata.name: obj for obj in informer.cache.list()}

    informer.start()
    try:
        eventually_blocking(cached, until=lambda found: set(found) == {"early"})
        core.create_namespaced_secret(namespace, {"metadata": {"name": "late"}})
        eventually_blocking(cached, until=lambda found: set(found) == {"early", "late"})
        core.patch_namespaced_secret("late", namespace, {"metadata": {"labels": {"x": "y"}}})
        eventually_blocking(cached, until=lambda found: found["late"].metadata.labels == {"x": "y"})
        core.delete_namespaced_secret("early", namespace)
        assert deleted.wait(30)
        assert set(cached()) == {"late"}
    finally:
        started = time.monotonic()
        informer.stop()
    assert time.monotonic() - started < 10
