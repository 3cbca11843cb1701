"""Workloads through the Python clients: rollouts by watching, evictions against a budget, waiting, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import kr8s
import kr8s.asyncio
import kubernetes
import pytest
from kr8s._async_utils import Portal
from kubernetes.client.exceptions import ApiException
from lightkube import AsyncClient, Client, KubeConfig
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod
from tests.clients.conftest import a_deployment
from tests.clients.workloads import workload

from shoal.testing.servers import ServerProcess
from shoal.testing.waiting import eventually_blocking

pytestmark = pytest.mark.filterwarnings("default:Kubernetes version:UserWarning")


@pytest.fixture(scope="session")
def cluster(simulated_cluster: ServerProcess) -> ServerProcess:
    return simulated_cluster


@pytest.fixture
def api(cluster: ServerProcess) -> Iterator[Any]:
    with kubernetes.config.new_client_from_config(cluster.kubeconfig) as made:
        yield made


def a_web(replicas: int = 3) -> dict[str, Any]:
    made = a_deployment("web")
    made["spec"]["replicas"] = replicas
    return made


def is_rolled_out(found: Any) -> bool:
    """By the rule that `kubectl rollout status` has."""
    status, wanted = found.status, found.spec.replicas
    return bool(
        status.observed_generation == found.metadata.generation
        and status.updated_replicas == status.available_replicas == status.replicas == wanted
    )


def rolled_out(apps: Any, namespace: str) -> Any:
    """The Deployment once a watch has shown that its rollout is over."""
    watch = kubernetes.watch.Watch()
    for event in watch.stream(apps.list_namespaced_deployment, namespace, timeout_seconds=30):
        if is_rolled_out(event["object"]):
            watch.stop()
            return event["object"]
    raise AssertionError("the rollout did not end")


def test_the_official_client_watches_a_rollout(api: Any, namespace: str) -> None:
    apps, core = kubernetes.client.AppsV1Api(api), kubernetes.client.CoreV1Api(api)
    apps.create_namespaced_deployment(namespace, a_web())
    rolled_out(apps, namespace)
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    apps.patch_namespaced_deployment("web", namespace, change)
    assert rolled_out(apps, namespace).metadata.annotations["deployment.kubernetes.io/revision"] == "2"
    images = {pod.spec.containers[0].image for pod in core.list_namespaced_pod(namespace).items}
    assert images == {"i:2"}
    apps.delete_namespaced_deployment("web", namespace, propagation_policy="Foreground")
    eventually_blocking(lambda: core.list_namespaced_pod(namespace).items, until=lambda found: not found)


def test_the_official_client_evicts_within_a_budget(api: Any, namespace: str) -> None:
    apps, core = kubernetes.client.AppsV1Api(api), kubernetes.client.CoreV1Api(api)
    policy = kubernetes.client.PolicyV1Api(api)
    apps.create_namespaced_deployment(namespace, a_web(2))
    rolled_out(apps, namespace)
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}}
    policy.create_namespaced_pod_disruption_budget(namespace, budget)
    pod = core.list_namespaced_pod(namespace).items[0].metadata
    eviction = kubernetes.client.V1Eviction(metadata=kubernetes.client.V1ObjectMeta(name=pod.name))
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod_eviction(pod.name, namespace, eviction)
    assert refused.value.status == 429 and "disruption budget" in refused.value.body
    policy.patch_namespaced_pod_disruption_budget("web", namespace, {"spec": {"minAvailable": 1}})
    eventually_blocking(
        lambda: policy.read_namespaced_pod_disruption_budget("web", namespace).status.disruptions_allowed,
        until=lambda allowed: allowed == 1,
    )
    core.create_namespaced_pod_eviction(pod.name, namespace, eviction)
    found = eventually_blocking(
        lambda: [each.metadata.uid for each in core.list_namespaced_pod(namespace).items],
        until=lambda uids: len(uids) == 2 and pod.uid not in uids,
    )
    assert found


def test_the_official_client_runs_a_job(api: Any, namespace: str) -> None:
    batch = kubernetes.client.BatchV1Api(api)
    batch.create_namespaced_job(namespace, workload("job", "work", run_seconds="0"))
    watch = kubernetes.watch.Watch()
    for event in watch.stream(batch.list_namespaced_job, namespace, timeout_seconds=30):
        if event["object"].status.succeeded == 1 and event["object"].status.completion_time:
            watch.stop()
    assert batch.read_namespaced_job("work", namespace).status.completion_time is not None


async def test_lightkube_waits_for_conditions_and_scales(cluster: ServerProcess, namespace: str) -> None:
    async def main() -> int:
        kube = AsyncClient(KubeConfig.from_file(cluster.kubeconfig), namespace=namespace)
        try:
            async with asyncio.timeout(30):
                await kube.create(Deployment.from_dict(a_web(1)))
                await kube.wait(Deployment, "web", for_conditions=["Available"])
                scale = Deployment.Scale(metadata=ObjectMeta(name="web"), spec=ScaleSpec(replicas=4))
                await kube.replace(scale, "web")
                async for _, found in kube.watch(Deployment, fields={"metadata.name": "web"}):
                    if found.status and found.status.readyReplicas == 4:
                        break
                await kube.create(Job.from_dict(workload("job", "work", run_seconds="0")))
                await kube.wait(Job, "work", for_conditions=["Complete"], raise_for_conditions=["Failed"])
                return len([pod async for pod in kube.list(Pod, labels={"app": "web"})])
        finally:
            await kube.close()

    assert await main() == 4


def test_lightkube_evicts(cluster: ServerProcess, namespace: str) -> None:
    with Client(KubeConfig.from_file(cluster.kubeconfig), namespace=namespace) as kube:
        kube.create(Pod.from_dict({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        kube.wait(Pod, "p", for_conditions=["Ready"])
        kube.create(Pod.Eviction(metadata=ObjectMeta(name="p")), "p")
        eventually_blocking(lambda: list(kube.list(Pod)), until=lambda found: not found)


def test_kr8s_waits_lists_pods_and_scales(cluster: ServerProcess, namespace: str) -> None:
    api = kr8s.api(kubeconfig=cluster.kubeconfig, namespace=namespace)
    body = a_web(2)
    body["metadata"]["namespace"] = namespace
    web = kr8s.objects.Deployment(body, api=api)
    web.create()
    web.wait("condition=Available", timeout=30)
    eventually_blocking(lambda: (web.refresh(), web.ready())[1])
    web.scale(3)
    web.wait("jsonpath='{.status.readyReplicas}'=3", timeout=30)
    found = web.pods()
    assert len(found) == 3 and all(cast(Any, pod).ready() for pod in found)
    node = kr8s.objects.Node.get(cast(Any, found[0]).spec.nodeName, api=api)
    assert node.name.startswith("node-")
    web.delete(propagation_policy="Foreground")
    web.wait("delete", timeout=30)
    assert list(api.get("pods", namespace=namespace)) == []
    assert api._session is not None
    Portal().call(api._session.aclose)
