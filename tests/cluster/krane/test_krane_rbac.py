"""The rules of an agent's account: everything it does is allowed, and nothing else."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from krane_world import KEY, NAME, NAMESPACE, OWNER, PUBLIC_KEY, custom, deployment, sealed, sentinel, world

from shoal.base.clock import RealClock
from shoal.errors import Forbidden
from shoal.krane import rbac
from shoal.krane.election import make_elector
from shoal.krane.sentinels import install
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb

SCOPES = {"": rbac.CLUSTER_RULES, "sentinel": rbac.SENTINEL_RULES, rbac.NAMESPACE: rbac.LEASE_RULES}
ROUTE = orjson.dumps({"environment": "env_1", "host": "shop.example"})
POLICY = orjson.dumps({"environment": "env_1", "requestSize": {"maxBytes": 100}})
KEYS = orjson.dumps({"keys": [{"id": "key_1", "name": "ci", "digest": "ab12", "spec": {}}]})
GATEWAYS = ("sentinel/snt_1", "route/rt_1", "policy/po_1", "keys/env_1")


def allowed(rules):
    return {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


PASSED_ON = {
    "": allowed(install.CLUSTER_RULES),
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
    await w.sentinels.applier.release("route/rt_1", "", "")
    await w.deployments.applier.release(KEY, NAMESPACE, NAME)
    await w.apply(
        deployment(
            8, key="deployment/dep_2", deployment="dep_2", name="web-2-def", secrets=[secret], autoscaling=scaling
        )
    )
    await w.deployments.applier.delete("deployment/dep_2", "", "")
    await w.apply(custom("route/rt_2", 9, "other-x", ROUTE))
    for key in (*GATEWAYS, "route/rt_2"):
        await w.sentinels.applier.delete(key, "", "")
    assert await w.sentinels.applier.live() == {}
    await election(w)


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
    kind = "Role" if scope else "ClusterRole"
    made = rbac.manifests()
    for obj in made:
        if obj["kind"] == kind and obj["metadata"].get("namespace", "") == scope:
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


def test_nothing_is_allowed_with_a_wildcard():
    for rules in SCOPES.values():
        for rule in rules:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
