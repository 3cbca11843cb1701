"""The rules of an agent's account: everything it does is allowed, and nothing else."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from krane_world import KEY, NAME, NAMESPACE, OWNER, PUBLIC_KEY, custom, deployment, sealed, sentinel, world

from shoal.base.clock import RealClock
from shoal.client import builtin
from shoal.errors import ApiError, BadRequest, Forbidden, NotFound
from shoal.krane import rbac
from shoal.krane.election import make_elector
from shoal.krane.labels import SERVING
from shoal.krane.rights import GRANT, with_grant
from shoal.krane.sentinels import install
from shoal.testing.controllers import Play
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb

SCOPES = {"": rbac.CLUSTER_RULES, "sentinel": rbac.SENTINEL_RULES, rbac.NAMESPACE: rbac.LEASE_RULES}
ROUTE = orjson.dumps({"environment": "env_1", "host": "shop.example"})
POLICY = orjson.dumps({"environment": "env_1", "requestSize": {"maxBytes": 100}})
KEYS = orjson.dumps({"keys": [{"id": "key_1", "name": "ci", "digest": "ab12", "spec": {}}]})
GATEWAYS = ("sentinel/snt_1", "route/rt_1", "policy/po_1", "keys/env_1")


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr("shoal.krane.objects.pod_events.LOOK_S", 0.05)


def allowed(rules):
    return {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


BIND = ("bind", "rbac.authorization.k8s.io", "clusterroles")  # no request: the server asks for it at a RoleBinding
PASSED_ON = {
    "": allowed(install.CLUSTER_RULES) | {BIND},
    "sentinel": allowed(install.NAMESPACED_RULES[1:2]),
}


async def whole_life(w):
    """Everything that an agent does in its cluster."""
    secret = sealed(1, PUBLIC_KEY, A="1")
    scaling = pb.Autoscaling(min=3, max=5)
    await w.apply(deployment(1, secrets=[secret], autoscaling=scaling))
    await w.apply(deployment(2, secrets=[secret], autoscaling=scaling, image="shoal/echo:2"))
    await w.apply(deployment(3, replicas=2))
    await w.of("deployments", "apps").patch(NAME, {"spec": {"minReadySeconds": 9}}, NAMESPACE, field_manager="somebody")
    await w.apply(deployment(3, replicas=2))
    assert set(await w.deployments.applier.live()) == {KEY}
    await w.apply(
        sentinel(4), custom("route/rt_1", 5, "shop-x", ROUTE), custom("policy/po_1", 6, "size-x", POLICY),
        custom("keys/env_1", 7, "keys", KEYS),
    )  # fmt: skip
    assert set(await w.sentinels.applier.live()) == set(GATEWAYS)
    observed = {KEY: w.deployments.observer, **dict.fromkeys(GATEWAYS, w.sentinels.observer)}
    await eventually(lambda: all(observer.report(key) is not None for key, observer in observed.items()), timeout_s=5)
    await eventually(lambda: w.deployments.observer.synced and w.sentinels.observer.synced, timeout_s=5)
    await unexplained_pod(w)
    await upgrade_gateway(w)
    await w.sentinels.applier.release("route/rt_1", "", "")
    job = pb.CheckJob(id="check-smoke-abc", check="smoke", image="shop/smoke:1", timeout_seconds=60)
    await w.apply(deployment(4, replicas=2, check_jobs=[job]))
    await eventually(lambda: ("get", "batch", "jobs", NAMESPACE) in w.requests.uses, timeout_s=15)
    await w.apply(deployment(5, replicas=2))
    await w.deployments.applier.release(KEY, NAMESPACE, NAME)
    await w.apply(
        deployment(
            8, key="deployment/dep_2", deployment="dep_2", name="web-2-def", secrets=[secret], autoscaling=scaling
        )
    )
    await w.deployments.applier.delete("deployment/dep_2", "", "")
    await w.apply(deployment(8, key="deployment/dep_3", deployment="dep_3", environment="env_3", namespace="shop-old"))
    await w.deployments.applier.delete("deployment/dep_3", "", "")
    await w.deployments.applier.delete("environment/env_3", "shop-old", "shop-old")
    await w.apply(custom("route/rt_2", 9, "other-x", ROUTE))
    for key in (*GATEWAYS, "route/rt_2"):
        await w.sentinels.applier.delete(key, "", "")
    assert await w.sentinels.applier.live() == {}
    await without_namespace(w)
    await election(w)


async def unexplained_pod(w):
    """A pod that does not start, and says why only in an event."""
    w.player.play = lambda pod: Play.BOUND
    about = await w.get("deployments", "apps")
    labels = about["spec"]["template"]["metadata"]["labels"]
    spec = {"containers": [{"name": "app", "image": "shoal/echo:1"}]}
    pod = await w.of("pods").create({"metadata": {"name": "stuck", "labels": labels}, "spec": spec}, NAMESPACE)
    event = {
        "metadata": {"name": "stuck.1", "namespace": NAMESPACE}, "type": "Warning", "reason": "FailedMount",
        "message": "no volume", "lastTimestamp": "2030-01-01T00:00:00Z",
        "involvedObject": {"kind": "Pod", "name": "stuck", "namespace": NAMESPACE, "uid": pod["metadata"]["uid"]},
    }  # fmt: skip
    await w.of("events").create(event, NAMESPACE)
    await eventually(lambda: [each.reason for each in w.report.instances] == ["FailedMount"], timeout_s=5)
    w.player.play = lambda pod: Play.READY
    await w.of("pods").delete("stuck", NAMESPACE)


async def upgrade_gateway(w):
    """A gateway of an earlier version has a Service that leads to all pods; they get their label."""
    about = (await w.get("services", name="sentinel-eu-x", namespace="sentinel"))["metadata"]
    container = {"name": "sentinel", "image": "shoal/sentinel:0"}
    pod = {"metadata": {"name": "sentinel-eu-x-0", "labels": about["labels"]}, "spec": {"containers": [container]}}
    await w.of("pods").create(pod, "sentinel")
    await w.of("services").patch("sentinel-eu-x", {"spec": {"selector": {SERVING: None}}}, "sentinel")
    await eventually(lambda: w.gateway().drift)
    await w.apply(sentinel(4))
    pod = await w.get("pods", name="sentinel-eu-x-0", namespace="sentinel")
    assert pod["metadata"]["labels"].get(SERVING) == "true"


async def without_namespace(w):
    """The namespace of the gateways is deleted, with the agent's rights in it, and made again by the agent alone."""
    await w.of("namespaces").delete("sentinel")

    async def is_gone():
        try:
            await w.of("namespaces").get("sentinel")
        except NotFound:
            return True
        return False

    await eventually(is_gone, timeout_s=5)
    with pytest.raises(ApiError):
        await w.apply(sentinel(10))  # this is how the agent notices
    await w.apply(sentinel(11), custom("route/rt_3", 12, "late-x", ROUTE))
    assert set(await w.sentinels.applier.live()) == {"sentinel/snt_1", "route/rt_3"}


async def election(w):
    elector = make_elector(
        w.client, namespace=rbac.NAMESPACE, cluster=OWNER.cluster, shard=OWNER.shard, agent="a", clock=RealClock(),
        random=lambda: 0.5,
    )  # fmt: skip
    async with asyncio.timeout(2):
        await elector.acquire()
    await elector.release()


async def test_everything_an_agent_does_is_allowed_and_everything_it_is_allowed_it_does():
    async with world((), old=True) as w:
        await whole_life(w)
        uses = set(w.requests.uses)
    for namespace, rules in SCOPES.items():
        used = {use[:3] for use in uses if namespace in ("", use[3])}
        assert allowed(rules) - used - PASSED_ON.get(namespace, set()) == set(), f"not needed in {namespace!r}"
    everywhere = allowed(rbac.CLUSTER_RULES)
    for verb, group, resource, namespace in uses:
        known = everywhere | allowed(SCOPES.get(namespace, ()))
        assert (verb, group, resource) in known


def without(scope, at):
    """The manifests of an agent without one rule."""
    role = {"": ("ClusterRole", rbac.NAME), "sentinel": ("ClusterRole", install.AGENT_GATEWAY_ROLE)}
    kind, name = role.get(scope, ("Role", rbac.NAME))
    made = rbac.manifests()
    for obj in made:
        if obj["kind"] == kind and obj["metadata"]["name"] == name:
            obj["rules"] = [rule for n, rule in enumerate(obj["rules"]) if n != at]
    return made


@pytest.mark.parametrize(("scope", "at"), [(scope, at) for scope, rules in SCOPES.items() for at in range(len(rules))])
async def test_without_any_one_rule_something_fails(scope, at):
    with pytest.raises((Forbidden, AssertionError, TimeoutError)):
        async with world((), manifests=without(scope, at), observe=False, old=True) as w:
            observing = [
                asyncio.create_task(side.observer.run(w.changed.append), name="observer")
                for side in (w.deployments, w.sentinels)
            ]
            try:
                await whole_life(w)
            finally:
                for task in observing:
                    task.cancel()
                await asyncio.wait(observing)


async def test_a_kind_that_an_agent_may_not_watch_is_named():
    at = next(n for n, rule in enumerate(rbac.CLUSTER_RULES) if "deployments" in rule["resources"])
    async with world((), manifests=without("", at), observe=False) as w:
        task = asyncio.create_task(w.deployments.observer.run(w.changed.append), name="observer")
        try:
            await eventually(lambda: "deployments" in w.deployments.observer.refusal)
            assert GRANT in with_grant(w.deployments.observer.refusal), "the server's own words are recognised"
        finally:
            task.cancel()
            await asyncio.wait([task])


def test_nothing_is_allowed_with_a_wildcard():
    for rules in SCOPES.values():
        for rule in rules:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert not {"escalate", "impersonate", "deletecollection"} & set(rule["verbs"])
            if "bind" in rule["verbs"]:  # the one role that the agent has anyway, and restores
                assert rule["resourceNames"] == [install.AGENT_GATEWAY_ROLE]
                assert rule["resources"] == ["clusterroles"]


async def test_an_agent_cannot_bind_its_gateway_role_under_another_name_nor_another_role():
    async with world(()) as w:
        subject = {"kind": "ServiceAccount", "name": "other", "namespace": "default"}
        binding = install.agent_binding([subject])
        renamed = {**binding, "metadata": {"name": "other", "namespace": "default"}}
        admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        bindings = w.client.of(builtin("rolebindings", "rbac.authorization.k8s.io"))
        with pytest.raises(Forbidden):
            await bindings.apply(renamed)
        with pytest.raises(Forbidden):
            await bindings.apply(
                {**binding, "metadata": {**renamed["metadata"], "name": install.AGENT_GATEWAY_ROLE}, "roleRef": admin}
            )


async def test_an_agent_with_the_rights_of_an_earlier_release_works_without_seeing_secrets():
    manifests = rbac.manifests()
    for role in manifests:
        if role["kind"] == "ClusterRole" and role["metadata"]["name"] == rbac.NAME:
            role["rules"] = [
                {**rule, "verbs": [verb for verb in rule["verbs"] if verb not in ("list", "watch")]}
                if "secrets" in rule["resources"]
                else rule
                for rule in role["rules"]
            ]
            role["rules"].append(
                {"apiGroups": [""], "resources": ["serviceaccounts", "services"], "verbs": ["list", "watch"]}
            )
        if role["kind"] == "ClusterRole" and role["metadata"]["name"] == install.AGENT_GATEWAY_ROLE:
            role["rules"].append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["list", "watch"]})
    async with world((), manifests=manifests) as w:
        given = deployment(1, secrets=[sealed(1, PUBLIC_KEY, A="1")])
        await w.apply(given)
        await eventually(lambda: w.report.desired_replicas == 2)
        await w.apply(deployment(2))  # the Secret goes with what needed it
        assert "Secret" not in await w.objects() and not w.report.drift


async def test_an_agent_with_some_namespaces_runs_apps_there_and_says_why_not_elsewhere():
    places = ("shop-prod", "team-b")
    made_by_hand = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in places]
    manifests = [*made_by_hand, *rbac.manifests(namespaces=places)]
    assert not [each for each in manifests if each["kind"] == "ClusterRole" and "deployments" in str(each["rules"])]
    async with world(manifests=manifests, namespaces=places) as w:
        await w.apply(deployment(1, namespace="shop-prod"))
        other = {"deployment": "dep_2", "name": "web-2", "namespace": "team-b", "environment": "env_2"}
        await w.apply(deployment(2, key="deployment/dep_2", **other))
        await w.ready()
        await w.ready(key="deployment/dep_2")
        assert set(await w.deployments.applier.live()) == {KEY, "deployment/dep_2"}
        with pytest.raises(BadRequest, match="namespace elsewhere is not one of .*shop-prod, team-b.*spec.namespace"):
            await w.apply(deployment(3, key="deployment/dep_3", deployment="dep_3", namespace="elsewhere"))

        await w.of("deployments", "apps").patch(
            "web-2", {"spec": {"minReadySeconds": 9}}, "team-b", field_manager="somebody"
        )
        await eventually(lambda: w.deployments.observer.report("deployment/dep_2").drift)
        await w.deployments.applier.delete("deployment/dep_2", "", "")
        await eventually(lambda: w.deployments.observer.report("deployment/dep_2") is None)
        await w.deployments.applier.delete("environment/env_2", "team-b", "team-b")
        assert await w.of("namespaces").get("team-b"), "the namespace is the administrator's"
        await w.apply(sentinel(4), custom("route/rt_1", 5, "shop-x", ROUTE))
        await eventually(lambda: w.sentinels.observer.report("route/rt_1") is not None)
