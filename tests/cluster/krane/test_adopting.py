"""A Deployment that ran before is adopted as a revision: nothing restarts, it can be scaled, watched, released and deleted.

The world has the real controllers and an agent with its own rights only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from krane_world import KEY, OWNER, World, deployment, world

from shoal.client import PatchType, Scope
from shoal.errors import ApiError, Conflict, NotFound
from shoal.krane.labels import ADOPTED, PREFIX
from shoal.kube.objects import Obj
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb

NS, WEB, REVISION = "shop", "web", "web-1-abc"
SELECTOR = {"app": "web"}


@pytest.fixture
async def made() -> AsyncIterator[World]:
    async with world() as found:
        await found.of("namespaces").create({"metadata": {"name": NS}})
        yield found


def a_deployment(name: str = WEB, **spec: Any) -> Obj:
    labels = {"app": name}
    container = {
        "name": "web",
        "image": "shop/web:1",
        "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "web", "key": "k"}}}],
    }
    return {
        "metadata": {"name": name, "namespace": NS, "labels": {**labels, "app.kubernetes.io/managed-by": "Helm"}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}, **spec,
        },
    }  # fmt: skip


async def running(made: World, **spec: Any) -> Obj:
    """A user's Deployment, up."""
    name = spec.pop("name", WEB)
    await made.of("deployments", "apps").create(a_deployment(name, **spec))

    async def up() -> Obj:
        found: Obj = await made.get("deployments", "apps", name, NS)
        assert found["status"].get("readyReplicas", 0) == found["spec"]["replicas"]
        assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
        return found

    return await eventually(up)


def adopting(number: int, uid: str, **fields: Any) -> pb.Item:
    of = {name: fields.pop(name) for name in ("autoscaler",) if name in fields}
    adopted = pb.Adopted(deployment=WEB, uid=uid, selector=SELECTOR, **of)
    given: Obj = {"namespace": NS, "name": REVISION, "image": "shop/web:1", "adopted": adopted} | fields
    return deployment(number, **given)


async def pods(made: World) -> dict[str, str]:
    found = (await made.of("pods").list(Scope(namespace=NS))).items
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found if not pod["metadata"].get("deletionTimestamp")
    }


async def endpoints(made: World, service: str = REVISION) -> list[str]:
    selector = f"kubernetes.io/service-name={service}"
    slices = (
        await made.of("endpointslices", "discovery.k8s.io").list(Scope(namespace=NS, label_selector=selector))
    ).items
    return sorted(each["targetRef"]["name"] for one in slices for each in one.get("endpoints") or ())


async def test_nothing_restarts_and_the_pods_are_its_instances(made: World) -> None:
    before, was = await running(made), await pods(made)
    await made.apply(adopting(7, before["metadata"]["uid"]))
    after = await made.get("deployments", "apps", WEB, NS)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"][f"{PREFIX}fleet"] == OWNER.fleet
    assert "krane" in [each["manager"] for each in after["metadata"]["managedFields"]]
    await made.ready()
    assert {each.name: each.uid for each in made.report.instances} == was == await pods(made)
    assert (made.report.live_name, list(made.report.drift)) == (WEB, [])
    sets = (await made.of("replicasets", "apps").list(Scope(namespace=NS))).items
    assert len(sets) == 1
    # gateways read the EndpointSlices of the headless Service of the revision
    await leads_to(made, sorted(was))
    written = made.requests.written()
    await made.apply(adopting(7, before["metadata"]["uid"]))
    assert made.requests.written() == [], f"applied again without a difference; before: {written}"


async def leads_to(made: World, wanted: list[str], service: str = REVISION) -> None:
    async def check() -> bool:
        assert (found := await endpoints(made, service)) == wanted, found
        return True

    await eventually(check)


async def test_it_is_scaled_and_the_new_pods_are_instances(made: World) -> None:
    uid, was = (await running(made))["metadata"]["uid"], await pods(made)
    await made.apply(adopting(7, uid))
    await made.apply(adopting(8, uid, replicas=3))
    await made.ready(3)
    assert was.items() <= (await pods(made)).items()
    await leads_to(made, sorted(each.name for each in made.report.instances))


async def test_pods_of_a_later_revision_with_the_same_labels_are_not_its_own(made: World) -> None:
    """They carry the labels of the user's Service, which goes on leading to both."""
    uid = (await running(made))["metadata"]["uid"]
    await made.of("services").create(
        {
            "metadata": {"name": WEB, "namespace": NS},
            "spec": {"selector": SELECTOR, "ports": [{"port": 80, "targetPort": 8080}]},
        }
    )
    budget = {
        "metadata": {"name": WEB, "namespace": NS},
        "spec": {"selector": {"matchLabels": SELECTOR}, "maxUnavailable": 1},
    }
    await made.of("poddisruptionbudgets", "policy").create(budget)
    await made.apply(adopting(7, uid))
    await made.ready()
    was = sorted(await pods(made))
    later = deployment(
        8, key="deployment/dep_2", deployment="dep_2", namespace=NS, name="web-2-xyz", revision=2, pod_labels=SELECTOR
    )
    await made.apply(later)
    await made.ready(key="deployment/dep_2")
    both = sorted(await pods(made))
    assert len(both) == 4
    await leads_to(made, both, WEB)
    assert sorted(each.name for each in made.report.instances) == was == await endpoints(made)
    own = {
        pod["metadata"]["labels"]["pod-template-hash"]
        for pod in (await made.of("pods").list(Scope(namespace=NS))).items
        if pod["metadata"]["name"] in was
    }
    headless = await made.get("services", "", REVISION, NS)
    assert headless["spec"]["selector"] == {**SELECTOR, "pod-template-hash": own.pop()}, "not those of revision 2"
    budgets = (await made.of("poddisruptionbudgets", "policy").list(Scope(namespace=NS))).items
    assert [each["metadata"]["name"] for each in budgets] == [WEB], "two budgets for a pod stop every drain"
    policy = await made.get("networkpolicies", "networking.k8s.io", "web-2-xyz", NS)
    assert all("from" not in rule for rule in policy["spec"]["ingress"])
    await made.deployments.applier.delete(KEY, NS, REVISION)  # the exchange retires it: a tombstone names the revision
    with pytest.raises(NotFound):
        await made.get("deployments", "apps", WEB, NS)
    await made.get("services", "", WEB, NS)  # the user's
    await made.get("deployments", "apps", "web-2-xyz", NS)
    await leads_to(made, [])


async def test_a_release_gives_it_back_as_it_was(made: World) -> None:
    before, was = await running(made), await pods(made)
    await made.apply(adopting(7, before["metadata"]["uid"]))
    await made.ready()
    await made.get("services", "", REVISION, NS)
    await made.deployments.applier.release(KEY, NS, REVISION)
    with pytest.raises(NotFound):  # only gateways used it
        await made.get("services", "", REVISION, NS)
    after = await made.get("deployments", "apps", WEB, NS)
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert not [name for name in after["metadata"].get("annotations") or {} if name.startswith(PREFIX)]
    assert (after["spec"], await pods(made)) == (before["spec"], was)


async def test_its_autoscaler_goes_on_with_the_bounds_of_the_app(made: World) -> None:
    before = await running(made)
    scaler = {
        "metadata": {"name": "web-hpa", "namespace": NS, "labels": {"team": "shop"}},
        "spec": {"minReplicas": 1, "maxReplicas": 4, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 7}},
                 "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": WEB},
                 "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}]},
    }  # fmt: skip
    was = await made.of("horizontalpodautoscalers", "autoscaling").create(scaler)
    scaling = pb.Autoscaling(min=2, max=6, cpu_percent=60)
    with pytest.raises(Conflict, match="web-hpa scales Deployment shop/web: name it as `autoscaler`"):
        await made.apply(adopting(6, before["metadata"]["uid"], autoscaling=scaling))
    await made.apply(adopting(7, before["metadata"]["uid"], autoscaling=scaling, autoscaler="web-hpa"))
    after = await made.get("horizontalpodautoscalers", "autoscaling", "web-hpa", NS)
    assert after["spec"] == was["spec"] | {"minReplicas": 2, "maxReplicas": 6}
    assert "ownerReferences" not in after["metadata"], "after a release it would go with the Deployment"
    assert (await made.get("deployments", "apps", WEB, NS))["spec"] == before["spec"]
    await made.apply(
        adopting(8, before["metadata"]["uid"], replicas=2, autoscaler="web-hpa")
    )  # revisions are exchanged
    with pytest.raises(NotFound):
        await made.get("horizontalpodautoscalers", "autoscaling", "web-hpa", NS)
    await made.apply(adopting(9, before["metadata"]["uid"], autoscaling=scaling, autoscaler="web-hpa"))  # and back
    again = await made.get("horizontalpodautoscalers", "autoscaling", "web-hpa", NS)
    assert again["spec"]["scaleTargetRef"]["name"] == WEB


async def test_a_template_that_others_change_is_followed_and_not_undone(made: World) -> None:
    uid = (await running(made))["metadata"]["uid"]
    await made.apply(adopting(7, uid))
    await made.ready()
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "shop/web:2"}]}}}}
    await made.of("deployments", "apps").patch(WEB, patch, NS, type=PatchType.STRATEGIC)
    old = await endpoints(made)

    def drifted() -> bool:
        assert list(made.report.drift) == ["Deployment.spec.template"]
        return True

    await eventually(drifted)

    async def followed() -> bool:
        await made.apply(adopting(7, uid))  # what the agent does about drift
        found = await made.get("deployments", "apps", WEB, NS)
        assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "shop/web:2"
        assert list(made.report.drift) == []
        new = await endpoints(made)
        assert len(new) == 2 and not set(new) & set(old)
        return True

    await eventually(followed)


async def test_labels_that_another_tool_puts_back_are_corrected(made: World) -> None:
    uid, was = (await running(made))["metadata"]["uid"], await pods(made)
    await made.apply(adopting(7, uid))
    await made.ready()
    patch = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}
    await made.of("deployments", "apps").patch(WEB, patch, NS)

    def gone() -> bool:
        assert made.deployments.observer.report(KEY) is None
        return True

    await eventually(gone)
    await made.apply(adopting(7, uid))
    await made.ready()
    assert await pods(made) == was


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"uid": "another"}, "has the uid .* and another is to be adopted"),
        ({"adopted": "gone"}, "does not exist in cluster c1: name the cluster where it runs"),
        ({"paused": True}, "is paused: resume it first"),
        ({"image": "shop/web:9"}, "runs the image shop/web:1, and the revision has shop/web:9: import it again"),
        ({"pod": True}, "also matches pods that are not its own .stray.: change their labels"),
        ({"owned": True}, "belongs to another app of Shoal already .* deployment dep_0.: use another Deployment"),
    ],
)
async def test_what_cannot_be_adopted_is_refused_with_the_fix_and_not_changed(
    made: World, change: Obj, said: str
) -> None:
    uid = (await running(made))["metadata"]["uid"]
    item = adopting(7, change.get("uid", uid), image=change.get("image", "shop/web:1"))
    if change.get("adopted"):
        item = adopting(7, uid, adopted=pb.Adopted(deployment="gone", uid=uid, selector=SELECTOR))
    if change.get("paused"):
        await made.of("deployments", "apps").patch(WEB, {"spec": {"paused": True}}, NS)
    if change.get("pod"):
        pod = {
            "metadata": {"name": "stray", "namespace": NS, "labels": SELECTOR},
            "spec": {"containers": [{"name": "a", "image": "a"}]},
        }
        await made.of("pods").create(pod)
    if change.get("owned"):
        other = adopting(6, uid, deployment="dep_0", name="web-0-abc")
        other.key = "deployment/dep_0"
        await made.apply(other)
    before = await made.get("deployments", "apps", WEB, NS)
    with pytest.raises(ApiError, match=said):
        await made.apply(item)
    assert await made.get("deployments", "apps", WEB, NS) == before
    assert change.get("owned") or ADOPTED not in (before["metadata"].get("annotations") or {})
