"""What an agent does in its cluster: objects, ownership, versions, drift, reports. Under its own account and rules."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from krane_world import (
    CONTROLLERS,
    KEY,
    NAME,
    NAMESPACE,
    OWNER,
    PRIVATE_KEY,
    PUBLIC_KEY,
    custom,
    deployment,
    item,
    sealed,
    sentinel,
    world,
)

from shoal.base.clock import RealClock
from shoal.base.tasks import cancel_all
from shoal.client import PatchType, ResourceClient, Scope, Unreachable, builtin
from shoal.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from shoal.krane import rbac
from shoal.krane.handlers import make_handlers
from shoal.krane.labels import FIELD_MANAGER_KRANE
from shoal.krane.objects.writer import NotOurs
from shoal.krane.owner import Newer
from shoal.krane.sentinels.images import GatewayImageMissing, GatewaySettings
from shoal.krane.sentinels.waves import GatewayWaits
from shoal.krane.unsealing import Unsealable
from shoal.sentinel.stats import belonging
from shoal.sync.keys import StreamKind
from shoal.sync.versions import Version
from shoal.testing.clusters import embedded_cluster
from shoal.testing.controllers import Play
from shoal.testing.waiting import eventually
from shoal.wire.fleet.v1 import cluster_pb as pb

RECORDED = Path(__file__).parents[2] / "unit" / "krane" / "sentinels"
ROUTE = orjson.dumps({"environment": "env_1", "host": "shop.example"})
EVERYTHING = ["Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount"]


# applying


async def test_a_deployment_becomes_ready_and_is_seen_with_routable_addresses():
    async with world() as w:
        await w.apply(deployment(1))
        await w.ready()
        assert KEY in w.changed
        assert w.report.live_name == NAME and w.report.desired_replicas == 2 and not w.report.drift
        pods = {each["metadata"]["name"]: each for each in (await w.of("pods").list(Scope(namespace=NAMESPACE))).items}
        for each in w.report.instances:
            assert each.address == f"{pods[each.name]['status']['podIP']}:8080"
            assert (each.cpu_millicores, each.memory_mib) == (50, 64)

        async def endpoints():
            slices = await w.of("endpointslices", "discovery.k8s.io").list(Scope(namespace=NAMESPACE))
            found = {address for each in slices.items for end in each["endpoints"] for address in end["addresses"]}
            assert found == {each.address.partition(":")[0] for each in w.report.instances}
            return True

        await eventually(endpoints)


async def test_what_pods_need_is_there_before_them_and_owned_afterwards():
    async with world() as w:
        w.requests.written()
        await w.apply(deployment(1, secrets=[sealed(1, PUBLIC_KEY, PASSWORD="hunter2")]))
        written = w.requests.written()
        root = written.index("deployments")
        assert set(written[:root]) == {"namespaces", "serviceaccounts", "secrets"}
        owner = await w.get("deployments", "apps")
        for plural, group in (
            ("serviceaccounts", ""), ("secrets", ""), ("services", ""), ("poddisruptionbudgets", "policy"),
            ("networkpolicies", "networking.k8s.io"),
        ):  # fmt: skip
            references = (await w.get(plural, group))["metadata"]["ownerReferences"]
            assert [each["uid"] for each in references] == [owner["metadata"]["uid"]], plural


async def test_applying_the_same_again_writes_nothing():
    async with world() as w:
        given = deployment(
            1, secrets=[sealed(1, PUBLIC_KEY, A="1")], autoscaling=pb.Autoscaling(min=2, max=4), port=8080
        )
        await w.apply(given)
        await w.ready()
        w.requests.written()
        await w.apply(given)
        assert w.requests.written() == []


async def test_a_change_writes_only_what_it_concerns_and_the_version_with_it():
    async with world() as w:
        await w.apply(deployment(1))
        w.requests.written()
        await w.apply(deployment(2, replicas=3))
        assert set(w.requests.written()) == {"deployments"}
        await w.ready(3)
        assert (await w.deployments.applier.live())[KEY].version == Version("main", 1, 2)


async def test_objects_carry_the_id_of_the_request_and_pods_do_not():
    async with world() as w:
        first = deployment(1)
        first.correlation = "deploy-7"
        await w.apply(first)
        await w.ready()

        async def ids():
            return {
                plural: (await w.get(plural, group))["metadata"]["annotations"].get("shoal.dev/correlation-id")
                for plural, group in (
                    ("deployments", "apps"),
                    ("services", ""),
                    ("networkpolicies", "networking.k8s.io"),
                )
            }

        assert await ids() == {"deployments": "deploy-7", "services": "deploy-7", "networkpolicies": "deploy-7"}
        template = (await w.get("deployments", "apps"))["spec"]["template"]
        pods = (await w.of("pods").list(Scope(namespace=NAMESPACE))).items
        assert "deploy-7" not in orjson.dumps([template, pods]).decode()
        w.requests.written()
        first.correlation = "deploy-8"  # the same version, however it came
        await w.apply(first)
        assert w.requests.written() == []
        second = deployment(2, replicas=3)
        second.correlation = "scale-9"
        await w.apply(second)
        assert await ids() == {"deployments": "scale-9", "services": "deploy-7", "networkpolicies": "deploy-7"}
        await w.apply(deployment(3, replicas=2))  # no request led to it
        assert (await ids())["deployments"] is None


async def test_routes_and_gateways_carry_the_id_of_the_request():
    async with world() as w:
        gateway, route = sentinel(1), custom("route/rt_1", 2, "shop-x", ROUTE)
        gateway.correlation = route.correlation = "deploy-7"
        await w.apply(gateway, route)
        for kind in ("Deployment", "Service", "SentinelRoute"):
            found = (await (await w.admin.by_kind(kind)).list(Scope(namespace="sentinel"))).items
            assert [each["metadata"]["annotations"]["shoal.dev/correlation-id"] for each in found] == ["deploy-7"], kind


async def test_an_older_version_is_refused_and_changes_nothing():
    async with world() as w:
        await w.apply(deployment(5, image="shoal/echo:5"))
        before = (await w.get("deployments", "apps"))["metadata"]["generation"]
        with pytest.raises(Newer):
            await w.apply(deployment(4, image="shoal/echo:4"))
        after = await w.get("deployments", "apps")
        assert after["metadata"]["generation"] == before
        assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "shoal/echo:5"
        later = deployment(1, image="shoal/echo:6")
        later.version.incarnation = 2
        await w.apply(later)  # a restored database counts on from its own numbers


@pytest.mark.parametrize("plural", ["deployments", "services"])
async def test_objects_of_others_are_never_touched(plural):
    async with world(controllers=()) as w:
        group = "apps" if plural == "deployments" else ""
        await w.of("namespaces").create({"metadata": {"name": NAMESPACE}})
        if plural == "deployments":
            labels = {"x": "y"}
            spec = {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "c", "image": "theirs"}]},
                },
            }
        else:
            spec = {"ports": [{"port": 1}]}
        theirs = await w.of(plural, group).create({"metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec})
        w.requests.written()
        with pytest.raises(NotOurs, match="not managed by krane"):
            await w.apply(deployment(1))
        assert w.requests.written() == [], "nothing of it was written"
        await w.deployments.applier.delete(KEY, NAMESPACE, NAME)
        await w.deployments.applier.release(KEY, NAMESPACE, NAME)
        now = await w.get(plural, group)
        assert now["metadata"]["uid"] == theirs["metadata"]["uid"] and now["spec"] == theirs["spec"]


@pytest.mark.parametrize("field", ["fleet", "cluster", "shard"])
async def test_objects_of_another_owner_are_neither_seen_nor_changed(field):
    async with world(controllers=()) as w:
        other = w.handlers(replace(OWNER, **{field: "other"}))[StreamKind.DEPLOYMENTS]
        await w.apply(deployment(1))
        assert await other.applier.live() == {}
        with pytest.raises(NotOurs, match="of fleet 'flt_1', cluster 'c1', shard 'default'"):
            await other.applier.apply(deployment(2, replicas=7))
        await other.applier.delete(KEY, NAMESPACE, NAME)
        await other.applier.delete(KEY, "", "")
        assert (await w.get("deployments", "apps"))["spec"]["replicas"] == 2


OTHER_SHARD = replace(OWNER, shard="b")


async def test_a_shard_takes_over_what_another_one_of_the_cluster_made_when_it_is_told_to():
    async with world(controllers=()) as w:
        other = w.handlers(OTHER_SHARD)[StreamKind.DEPLOYMENTS].applier
        await w.apply(deployment(9))
        before = await w.objects()
        with pytest.raises(NotOurs, match="shard 'default'"):
            await other.apply(deployment(10))
        with pytest.raises(NotOurs):
            await other.apply(deployment(10, taken_from="c"))
        assert await w.objects() == before
        await other.apply(deployment(7, taken_from=OWNER.shard))  # versions of two places do not compare
        after = await w.objects()
        assert after.keys() == before.keys()
        for kind, obj in after.items():
            assert obj["metadata"]["uid"] == before[kind]["metadata"]["uid"], f"{kind} was made anew"
            assert obj["metadata"]["labels"]["shoal.dev/shard"] == "b"
        assert set(await other.live()) == {KEY}
        assert not await w.deployments.applier.live()


async def test_the_shard_that_had_it_neither_takes_it_back_nor_deletes_it():
    async with world(controllers=()) as w:
        other = w.handlers(OTHER_SHARD)[StreamKind.DEPLOYMENTS].applier
        await w.apply(deployment(1))
        await other.apply(deployment(2, taken_from=OWNER.shard))
        after = await w.objects()
        with pytest.raises(NotOurs):
            await w.apply(deployment(3))
        await w.deployments.applier.delete(KEY, NAMESPACE, NAME)
        await w.deployments.applier.delete(KEY, "", "")
        await w.deployments.applier.release(KEY, NAMESPACE, NAME)
        assert await w.objects() == after
        await w.apply(deployment(4, taken_from="b"))  # unless it is told to
        assert {obj["metadata"]["labels"]["shoal.dev/shard"] for obj in (await w.objects()).values()} == {"default"}


async def test_what_is_taken_over_while_it_is_being_deleted_stays(monkeypatch):
    async with world(controllers=()) as w:
        other = w.handlers(OTHER_SHARD)[StreamKind.DEPLOYMENTS].applier
        await w.apply(deployment(1))
        applier = w.deployments.applier
        read, taken = ResourceClient.get, []

        async def read_late(self, *where):
            found = await read(self, *where)
            if not taken:  # between the look at the object and its deletion
                taken.append(True)
                await other.apply(deployment(2, taken_from=OWNER.shard))
            return found

        monkeypatch.setattr(ResourceClient, "get", read_late)
        await applier.delete(KEY, NAMESPACE, NAME)
        assert {obj["metadata"]["labels"]["shoal.dev/shard"] for obj in (await w.objects()).values()} == {"b"}
        assert sorted(await w.objects()) == sorted(EVERYTHING)


async def test_a_namespace_of_somebody_else_is_used_as_it_is():
    async with world(controllers=()) as w:
        before = await w.of("namespaces").create({"metadata": {"name": NAMESPACE, "labels": {"team": "shop"}}})
        await w.apply(deployment(1))
        after = await w.of("namespaces").get(NAMESPACE)
        assert after["metadata"]["labels"] == before["metadata"]["labels"]


async def _phase(w, name):
    try:
        return (await w.of("namespaces").get(name))["status"]["phase"]
    except NotFound:
        return "gone"


async def test_the_namespace_of_a_deleted_environment_goes_with_what_krane_has_in_it():
    async with world() as w:
        await w.apply(deployment(1))
        await w.ready()
        await w.deployments.applier.delete("environment/env_1", NAMESPACE, NAMESPACE)
        await eventually(lambda: _phase(w, NAMESPACE), until=lambda phase: phase == "gone", timeout_s=10)
        await w.deployments.applier.delete("environment/env_1", NAMESPACE, NAMESPACE)  # again, as after a restart
        await w.apply(deployment(2))  # the agent does not believe that the namespace is still there
        assert await _phase(w, NAMESPACE) == "Active"


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"app.kubernetes.io/managed-by": "krane", "shoal.dev/fleet": "flt_1", "shoal.dev/environment": "env_2"},
        {"app.kubernetes.io/managed-by": "krane", "shoal.dev/fleet": "flt_2", "shoal.dev/environment": "env_1"},
        {"app.kubernetes.io/managed-by": "helm", "shoal.dev/fleet": "flt_1", "shoal.dev/environment": "env_1"},
    ],
)
async def test_a_namespace_that_krane_did_not_make_for_the_environment_stays(labels):
    async with world(controllers=(), observe=False) as w:
        await w.of("namespaces").create({"metadata": {"name": NAMESPACE, "labels": labels}})
        await w.deployments.applier.delete("environment/env_1", NAMESPACE, NAMESPACE)
        assert await _phase(w, NAMESPACE) == "Active"


@pytest.mark.parametrize(
    ("plural", "spec"),
    [
        ("persistentvolumeclaims", {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
        ("services", {"ports": [{"port": 80}]}),
        ("pods", {"containers": [{"name": "a", "image": "shoal/echo"}]}),
    ],
)
async def test_a_namespace_stays_while_others_run_or_store_something_in_it(plural, spec):
    async with world(controllers=(), observe=False) as w:
        await w.apply(deployment(1))
        await w.of(plural).create({"metadata": {"name": "theirs", "namespace": NAMESPACE}, "spec": spec})
        with pytest.raises(Conflict, match=r"krane did not make: \w+ theirs; delete them"):
            await w.deployments.applier.delete("environment/env_1", NAMESPACE, NAMESPACE)
        assert await _phase(w, NAMESPACE) == "Active"


async def test_what_is_stopped_is_kept_without_pods():
    async with world() as w:
        await w.apply(deployment(1))
        await w.ready()
        await w.apply(deployment(2, running=False))
        await eventually(lambda: w.report.desired_replicas == 0 and not w.report.instances)
        assert set(EVERYTHING) <= set(await w.left())


async def test_handing_replicas_to_an_autoscaler_changes_none_and_taking_them_back_sets_them():
    async with world() as w:
        scaling = pb.Autoscaling(min=2, max=9, cpu_percent=70)
        await w.apply(deployment(1, replicas=5))
        await w.apply(deployment(2, replicas=5, autoscaling=scaling))
        assert (await w.get("deployments", "apps"))["spec"]["replicas"] == 5
        await w.of("deployments", "apps").scale(NAME, 4, NAMESPACE)  # as an autoscaler does
        await eventually(lambda: w.report.desired_replicas == 4)
        assert not w.report.drift
        await w.apply(deployment(3, replicas=5, autoscaling=scaling, image="shoal/echo:3"))
        assert (await w.get("deployments", "apps"))["spec"]["replicas"] == 4
        await w.apply(deployment(4, replicas=3))
        assert (await w.get("deployments", "apps"))["spec"]["replicas"] == 3
        with pytest.raises(NotFound):
            await w.get("horizontalpodautoscalers", "autoscaling")


async def test_an_autoscaled_deployment_begins_with_its_least_replicas():
    async with world() as w:
        await w.apply(deployment(1, autoscaling=pb.Autoscaling(min=3, max=9, cpu_percent=70)))
        await w.ready(3)
        await w.apply(deployment(2, running=False, autoscaling=pb.Autoscaling(min=3, max=9)))
        await eventually(lambda: w.report.desired_replicas == 0)
        await w.apply(deployment(3, autoscaling=pb.Autoscaling(min=3, max=9)))
        await w.ready(3)


EVERY_OPTION = {
    "command": ["serve"], "args": ["--all", ""], "env": {"EMPTY": "", "REFERS": "$(PORT)"}, "protocol": "h2c",
    "resources": pb.Resources(cpu_millicores=1500, memory_mib=1536, ephemeral_mib=1024),
    "termination_seconds": 600, "git": pb.Git(sha="abc", branch="main", repository="shop/web", message="a\nb $(PORT)"),
    "node_selector": {"disk": "fast"},
    "tolerations": [
        pb.Toleration(key="team", operator="Equal", value="shop", effect="NoSchedule"),
        pb.Toleration(operator="Exists"),
    ],
    "autoscaling": pb.Autoscaling(min=2, max=5, cpu_percent=70, memory_percent=60),
}  # fmt: skip


@pytest.mark.parametrize(
    ("check", "signal"),
    [
        (pb.HealthCheck(kind="http", path="/up?x=1", initial_delay_seconds=3, period_seconds=2, failures=1), "SIGINT"),
        (pb.HealthCheck(kind="tcp", port=9000), "SIGKILL"),
        (pb.HealthCheck(kind="grpc", timeout_seconds=9), "SIGTERM"),
        (pb.HealthCheck(kind="exec", command=["true"]), ""),
    ],
    ids=lambda given: given.kind if isinstance(given, pb.HealthCheck) else given,
)
async def test_whatever_a_state_says_is_accepted_and_is_no_drift_once_it_is_there(check, signal):
    async with world(controllers=()) as w:
        secrets = [sealed(1, PUBLIC_KEY, A="1", EMPTY="")]
        given = deployment(1, healthcheck=check, shutdown_signal=signal, secrets=secrets, **EVERY_OPTION)
        await w.apply(given)
        await eventually(lambda: w.report.desired_replicas == 2)
        other = w.handlers(OWNER)[StreamKind.DEPLOYMENTS]  # remembers nothing, so it asks the server
        w.requests.written()
        await other.applier.apply(given)
        assert w.requests.written() == []
        assert not w.report.drift


async def test_what_cannot_be_rendered_is_refused_before_anything_is_written():
    async with world(controllers=(), observe=False) as w:
        w.requests.written()
        with pytest.raises(Invalid, match="env"):
            await w.apply(deployment(1, env={"not a name": "1"}))
        assert w.requests.written() == []


async def test_what_is_seen_anyway_is_not_asked_for():
    async with world(controllers=()) as w:
        numbers = iter(range(1, 1000))

        async def cheap():  # not before everything that was written has been seen
            w.requests.uses.clear()
            await w.apply(deployment(next(numbers), replicas=next(numbers)))
            return w.requests.uses == [("patch", "apps", "deployments", NAMESPACE)]

        await eventually(cheap)


async def test_nothing_newer_is_overwritten_although_what_was_seen_is_old():
    async with world(controllers=()) as w:
        await w.apply(deployment(1))
        await eventually(lambda: w.report.desired_replicas == 2)
        other = w.handlers(OWNER)[StreamKind.DEPLOYMENTS]  # another agent of the shard, which has taken over
        await other.applier.apply(deployment(9, replicas=9))
        with pytest.raises(Newer):
            await w.apply(deployment(5, replicas=5))  # at once: the watch has not told of it yet
        assert (await w.get("deployments", "apps"))["spec"]["replicas"] == 9


# secrets


async def test_secrets_are_opened_and_a_new_version_rolls_the_pods():
    async with world() as w:
        await w.apply(deployment(1, secrets=[sealed(1, PUBLIC_KEY, PASSWORD="one")]))
        await w.ready()
        first = {each.uid for each in w.report.instances}
        await w.apply(deployment(2, secrets=[sealed(2, PUBLIC_KEY, PASSWORD="two")]))
        await eventually(lambda: len(w.report.instances) == 2 and not first & {each.uid for each in w.report.instances})
        assert (await w.get("secrets"))["data"] == {"PASSWORD": "dHdv"}
        await w.apply(deployment(3))
        with pytest.raises(NotFound):
            await w.get("secrets")


async def test_a_secret_for_another_agent_fails_the_deployment_and_names_no_value():
    async with world(controllers=()) as w:
        stranger = X25519PrivateKey.generate().public_key().public_bytes_raw()
        await w.apply(deployment(1))
        w.requests.written()
        with pytest.raises(Unsealable, match="PASSWORD") as refused:
            await w.apply(deployment(2, secrets=[sealed(1, stranger, PASSWORD="hunter2")]))
        assert "hunter2" not in str(refused.value) and refused.value.__cause__ is None
        assert w.requests.written() == []


# drift


async def edit(w, patch, plural="deployments", group="apps", name=NAME, namespace=NAMESPACE):
    await w.of(plural, group).patch(name, patch, namespace, type=PatchType.STRATEGIC, field_manager="kubectl-edit")


def template(**container):
    return {"spec": {"template": {"spec": {"containers": [{"name": "app", **container}]}}}}


@pytest.mark.parametrize(
    ("patch", "field"),
    [
        (template(image="evil:1"), "Deployment.spec.template.spec.containers[app].image"),
        (template(env=[{"name": "ADDED", "value": "1"}]), "Deployment.spec.template.spec.containers[app].env[ADDED]"),
        ({"spec": {"replicas": 7}}, "Deployment.spec.replicas"),
        ({"spec": {"minReadySeconds": 9}}, "Deployment.spec.minReadySeconds"),
    ],
)
async def test_what_somebody_changed_is_reported_and_put_back(patch, field):
    async with world(controllers=()) as w:
        given = deployment(1)
        await w.apply(given)
        await eventually(lambda: w.report.desired_replicas == 2)
        before = (await w.get("deployments", "apps"))["spec"]
        await edit(w, patch)
        await eventually(lambda: w.report.drift == [field])
        await w.apply(given)
        await eventually(lambda: not w.report.drift)
        after = (await w.get("deployments", "apps"))["spec"]
        assert after == before


async def test_an_object_around_a_deployment_that_somebody_deletes_is_reported_and_made_again():
    async with world(controllers=()) as w:
        await w.apply(deployment(1))
        await eventually(lambda: w.report.desired_replicas == 2)
        await w.of("services").delete(NAME, NAMESPACE)
        await eventually(lambda: w.report.drift == ["Service.(deleted)"])
        await w.apply(deployment(1))
        await eventually(lambda: not w.report.drift)
        assert (await w.get("services"))["spec"]["clusterIP"] == "None"


async def test_what_an_earlier_agent_rendered_is_not_restarted_by_a_later_one():
    async with world() as w:
        await w.apply(deployment(1))  # by the first rules: that is all that earlier control planes say
        before = await w.get("deployments", "apps")
        await w.apply(deployment(2, render=2))  # the control plane has been upgraded too
        after = await w.get("deployments", "apps")
        assert before["spec"] == after["spec"] and before["metadata"]["generation"] == after["metadata"]["generation"]
        await eventually(lambda: not w.report.drift)
        await w.apply(deployment(3, key="deployment/dep_2", deployment="dep_2", name="web-2-def", render=2))
        newer = await w.get("deployments", "apps", name="web-2-def")
        (container,) = newer["spec"]["template"]["spec"]["containers"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        kept = newer["metadata"]["generation"]
        await w.apply(deployment(4, key="deployment/dep_2", deployment="dep_2", name="web-2-def"))
        newer = await w.get("deployments", "apps", name="web-2-def")
        assert newer["metadata"]["generation"] == kept, "an earlier control plane does not say by which rules"


async def test_a_new_revision_starts_where_its_namespace_enforces_restricted():
    async with world() as w:
        enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
        await w.of("namespaces").create({"metadata": {"name": NAMESPACE, "labels": enforced}})
        await w.apply(deployment(1, render=2))
        await w.ready()
        template = (await w.get("deployments", "apps"))["spec"]["template"]
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
        await w.of("namespaces").patch(NAMESPACE, {"metadata": {"labels": dict.fromkeys(enforced)}})
        await w.apply(deployment(2, render=2))
        assert (await w.get("deployments", "apps"))["spec"]["template"] == template, "it is fixed with the revision"


async def test_a_secret_that_somebody_deletes_or_changes_is_reported_and_made_again():
    async with world() as w:
        given = deployment(1, secrets=[sealed(1, PUBLIC_KEY, PASSWORD="hunter2")])
        await w.apply(given)
        await w.ready()
        good = (await w.get("secrets"))["data"]
        await w.of("secrets").delete(NAME, NAMESPACE)
        await eventually(lambda: w.report.drift == ["Secret.(deleted)"])
        await w.apply(given)
        assert (await w.get("secrets"))["data"] == good
        await eventually(lambda: not w.report.drift)
        await w.of("secrets").patch(NAME, {"stringData": {"MORE": "1"}}, NAMESPACE, field_manager="somebody")
        await eventually(lambda: w.report.drift == ["Secret.data"])
        await w.apply(given)
        assert (await w.get("secrets"))["data"] == good
        await eventually(lambda: not w.report.drift)


async def test_credentials_of_a_registry_come_change_and_go_beside_the_secrets_of_an_app():
    def given(number, registry=None, **fields):
        password = {"SERVER": "registry.example", "USERNAME": "ci", "PASSWORD": registry}
        more = {"registries": [sealed(number, PUBLIC_KEY, **password)]} if registry else {}
        return deployment(number, render=2, secrets=[sealed(1, PUBLIC_KEY, A="1")], **more, **fields)

    async def config():
        secret = await w.get("secrets", name=f"{NAME}-registries")
        return orjson.loads(base64.b64decode(secret["data"][".dockerconfigjson"]))["auths"]["registry.example"]

    async with world() as w:
        await w.apply(given(1, "one"))
        await w.ready()
        assert (await config())["password"] == "one"
        made = await w.get("deployments", "apps")
        await w.apply(given(2, "two"))
        assert (await config())["password"] == "two"
        changed = await w.get("deployments", "apps")
        assert changed["spec"] == made["spec"], "a new password restarts nothing"
        await w.of("secrets").delete(f"{NAME}-registries", NAMESPACE)
        await eventually(lambda: w.report.drift == ["Secret.(deleted)"])
        await w.apply(given(2, "two"))
        assert (await config())["password"] == "two"
        w.requests.written()
        await eventually(lambda: not w.report.drift)
        await w.apply(given(2, "two"))
        assert w.requests.written() == []
        await w.apply(given(3))
        with pytest.raises(NotFound):
            await config()
        assert "Secret" in await w.objects()
        await w.apply(given(4, "three"))
        await w.deployments.applier.delete(KEY, NAMESPACE, NAME)
        assert "Secret" not in await w.left()


async def test_a_secret_that_was_deleted_while_no_agent_ran_is_missed_by_the_next_one():
    async with world() as w:
        await w.apply(deployment(1, secrets=[sealed(1, PUBLIC_KEY, PASSWORD="hunter2")]))
        await w.of("secrets").delete(NAME, NAMESPACE)
        next_one = w.handlers(OWNER)[StreamKind.DEPLOYMENTS].observer
        task = asyncio.create_task(next_one.run(lambda key: None), name="observer")
        try:
            await eventually(lambda: next_one.synced)
            await eventually(lambda: next_one.report(KEY).drift == ["Secret.(deleted)"])
        finally:
            await cancel_all(task)


async def test_what_is_only_to_be_reported_stays_until_a_new_version_says_otherwise():
    async with world(controllers=()) as w:
        await w.apply(deployment(1, drift=pb.Drift.REPORT))
        await edit(w, {"spec": {"minReadySeconds": 9}})
        await eventually(lambda: w.report.drift == ["Deployment.spec.minReadySeconds"])
        await w.apply(deployment(2, drift=pb.Drift.REPORT, replicas=3))
        assert (await w.get("deployments", "apps"))["spec"]["minReadySeconds"] == 9
        await w.apply(deployment(3, replicas=3))
        assert not (await w.get("deployments", "apps"))["spec"].get("minReadySeconds")


async def test_a_restart_that_somebody_asks_for_is_no_drift():
    async with world() as w:
        await w.apply(deployment(1))
        await w.ready()
        restart = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
        first = {each.uid for each in w.report.instances}
        await edit(w, restart)
        await eventually(lambda: len(w.report.instances) == 2 and not first & {each.uid for each in w.report.instances})
        assert not w.report.drift
        w.requests.written()
        await w.apply(deployment(1))
        assert w.requests.written() == []


# going


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by labels"])
async def test_deleting_removes_every_object_and_does_not_mind_what_is_gone(named):
    async with world() as w:
        scaled = {"autoscaling": pb.Autoscaling(min=1, max=2), "secrets": [sealed(1, PUBLIC_KEY, A="1")]}
        await w.apply(deployment(1, **scaled))
        await w.ready(1)
        assert len(await w.left()) == 7
        await w.of("services").delete(NAME, NAMESPACE)
        where = (NAMESPACE, NAME) if named else ("", "")
        await w.deployments.applier.delete(KEY, *where)
        await w.deployments.applier.delete(KEY, *where)

        async def gone():
            assert await w.left() == []
            assert (await w.of("pods").list(Scope(namespace=NAMESPACE))).items == []
            return w.deployments.observer.report(KEY) is None

        await eventually(gone)
        assert await w.deployments.applier.live() == {}
        assert KEY not in w.deployments.observer.keys()


async def test_a_deployment_that_somebody_deletes_takes_everything_with_it_and_can_be_made_again():
    async with world() as w:
        await w.apply(deployment(1, secrets=[sealed(1, PUBLIC_KEY, A="1")]))
        await w.ready()
        await w.of("deployments", "apps").delete(NAME, NAMESPACE)

        async def gone():
            assert await w.left() == []
            return w.deployments.observer.report(KEY) is None

        await eventually(gone)
        await w.apply(deployment(1, secrets=[sealed(1, PUBLIC_KEY, A="1")]))
        await w.ready()


async def test_what_is_left_of_a_half_made_deployment_is_found_and_deleted():
    async with world(controllers=()) as w:
        await w.apply(deployment(3))
        await w.of("deployments", "apps").delete(NAME, NAMESPACE)
        live = await w.deployments.applier.live()
        assert (live[KEY].namespace, live[KEY].name, live[KEY].version) == (NAMESPACE, NAME, Version("main", 1, 3))
        await w.deployments.applier.delete(KEY, "", "")
        assert await w.left() == []


async def test_what_is_released_runs_on_and_is_not_ours_any_more():
    async with world() as w:
        await w.apply(deployment(1))
        await w.ready()
        pods = {each.uid for each in w.report.instances}
        await w.deployments.applier.release(KEY, NAMESPACE, NAME)
        await eventually(lambda: w.deployments.observer.report(KEY) is None)
        assert await w.deployments.applier.live() == {} and await w.left() == []
        await w.deployments.applier.delete(KEY, NAMESPACE, NAME)
        left = await w.get("deployments", "apps")
        assert left["status"]["availableReplicas"] == 2
        now = (await w.of("pods").list(Scope(namespace=NAMESPACE))).items
        assert {each["metadata"]["uid"] for each in now} == pods, "no pod was restarted"


# observing


async def settled(w):
    """The Deployment, once its controller has said the last of it."""
    found = await w.get("deployments", "apps")
    reasons = [each.get("reason") for each in found["status"]["conditions"]]
    assert "NewReplicaSetAvailable" in reasons and found["status"]["availableReplicas"] == found["spec"]["replicas"]
    return found


async def test_a_pod_that_crashes_is_seen_although_its_deployment_says_nothing():
    async with world() as w:
        await w.apply(deployment(1, replicas=1))
        await w.ready(1)
        version = (await eventually(lambda: settled(w)))["metadata"]["resourceVersion"]
        pod = (await w.of("pods").list(Scope(namespace=NAMESPACE))).items[0]
        status = pod["status"]["containerStatuses"][0]
        end = {"exitCode": 137, "reason": "OOMKilled", "startedAt": status["state"]["running"]["startedAt"]}
        crashed = {**status, "restartCount": 1, "lastState": {"terminated": {**end, "finishedAt": end["startedAt"]}}}
        w.changed.clear()
        await w.of("pods").replace_status({**pod, "status": {**pod["status"], "containerStatuses": [crashed]}})
        await eventually(lambda: w.report.instances[0].restarts == 1)
        assert (w.report.instances[0].reason, w.report.instances[0].exit_code) == ("OOMKilled", 137)
        assert KEY in w.changed
        assert (await w.get("deployments", "apps"))["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    ("labels", "quota", "expected"),
    [
        ({"pod-security.kubernetes.io/enforce": "restricted"}, None, "violates PodSecurity"),
        ({}, {"pods": "0"}, "exceeded quota"),
    ],
)
async def test_pods_that_the_cluster_refuses_are_reported_with_its_reason(labels, quota, expected):
    async with world() as w:
        await w.of("namespaces").create({"metadata": {"name": NAMESPACE, "labels": labels}})
        if quota is not None:
            made = await w.of("resourcequotas").create({"metadata": {"name": "q"}, "spec": {"hard": quota}}, NAMESPACE)
            counted = {**made, "status": {"hard": quota, "used": {"pods": "0"}}}
            await w.of("resourcequotas").replace_status(counted)
        await w.apply(deployment(1))
        await eventually(lambda: w.report.reason == "FailedCreate")
        assert expected in w.report.message and w.report.available_replicas == 0
        assert w.report.instances == []


async def test_a_pod_that_says_nothing_is_explained_by_its_newest_warning(monkeypatch):
    monkeypatch.setattr("shoal.krane.objects.pod_events.LOOK_S", 0.05)
    async with world() as w:
        w.player.play = lambda pod: Play.BOUND
        await w.apply(deployment(1, replicas=1))
        await eventually(lambda: len(w.report.instances) == 1)
        pod = (await w.of("pods").list(Scope(namespace=NAMESPACE))).items[0]
        reference = {"kind": "Pod", "namespace": NAMESPACE} | {name: pod["metadata"][name] for name in ("name", "uid")}
        for at, kind, reason in (
            ("2030-01-01T00:00:01Z", "Warning", "FailedMount"),
            ("2030-01-01T00:00:00Z", "Warning", "Other"),
            ("2030-01-01T00:00:02Z", "Normal", "Pulled"),
        ):
            await w.of("events").create(
                {
                    "metadata": {"name": f"e-{reason.lower()}", "namespace": NAMESPACE}, "involvedObject": reference,
                    "type": kind, "reason": reason, "message": 'secret "db" not found', "lastTimestamp": at,
                },
                NAMESPACE,
            )  # fmt: skip
        await eventually(lambda: w.report.instances[0].reason == "FailedMount")
        assert w.report.instances[0].message == 'secret "db" not found'
        assert KEY in w.changed
        w.player.play = lambda pod: Play.READY
        w.player.replay()
        await eventually(lambda: w.report.instances[0].ready)
        assert w.report.instances[0].reason == ""


async def test_a_gateway_whose_image_cannot_be_pulled_or_whose_pods_are_refused_says_so():
    async with world() as w:
        w.player.play = lambda pod: Play.BOUND
        await w.apply(sentinel(1))
        pods = w.of("pods")

        async def made():
            return (await pods.list(Scope(namespace="sentinel"))).items[0]

        pod = await eventually(made, retry_on=(IndexError,))
        state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
        status = {"name": "sentinel", "image": "shoal/sentinel:1", "imageID": "", "ready": False, "restartCount": 0}
        pod["status"]["containerStatuses"] = [{**status, "state": state}]
        await pods.replace_status(
            await w.get("pods", name=pod["metadata"]["name"], namespace="sentinel") | {"status": pod["status"]}
        )
        await eventually(lambda: w.gateway().reason == "ImagePullBackOff")
        assert w.gateway().message == (f"{pod['metadata']['name']}: image shoal/sentinel:1: Back-off pulling image")
        await eventually(lambda: "sentinel/snt_1" in w.changed)


async def test_a_pod_that_failed_is_no_instance_but_the_one_in_its_place_is():
    async with world() as w:
        await w.apply(deployment(1, replicas=1))
        await w.ready(1)
        name = w.report.instances[0].name
        w.player.play = lambda pod: Play.FAILED if pod["metadata"]["name"] == name else Play.READY
        w.player.replay()
        await eventually(lambda: [each.name for each in w.report.instances if each.ready] not in ([], [name]))
        assert [each.name for each in w.report.instances] != [name] and len(w.report.instances) == 1
        assert (await w.of("pods").get(name, NAMESPACE))["status"]["phase"] == "Failed"


async def test_a_copy_that_somebody_made_is_not_taken_for_the_deployment():
    async with world(controllers=()) as w:
        await w.apply(deployment(1))
        await eventually(lambda: w.report.desired_replicas == 2)
        original = await w.get("deployments", "apps")
        about = {name: original["metadata"][name] for name in ("labels", "annotations", "namespace")}
        copy = {"metadata": {**about, "name": "a-copy"}, "spec": {**original["spec"], "replicas": 8}}
        w.changed.clear()
        await w.of("deployments", "apps").create(copy)
        await eventually(lambda: KEY in w.changed)
        assert w.report.live_name == NAME and w.report.desired_replicas == 2
        await w.deployments.applier.delete(KEY, "", "")
        assert await w.left() == []


async def test_the_observer_of_sentinels_waits_until_their_kinds_can_be_made(monkeypatch):
    async with world(controllers=(), observe=False) as w:
        from shoal.krane.sentinels.install import Installation

        made, failures = Installation.kinds, [Forbidden("not yet"), Unreachable("away")]

        async def kinds(self):
            if failures:
                raise failures.pop()
            await made(self)

        monkeypatch.setattr(Installation, "kinds", kinds)
        side = make_handlers(w.client, clock=RealClock(), random=lambda: 0.0)(OWNER, PRIVATE_KEY)[StreamKind.SENTINELS]
        watching = asyncio.create_task(side.observer.run(lambda key: None), name="observer")
        try:
            await eventually(lambda: side.observer.synced)
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        assert failures == []


# sentinels


def entry(private="k"):
    """What the control plane sends of the certificate between regions."""
    values = {"tls.crt": "certificate", "tls.key": private}
    return {"entry": sealed(1, PUBLIC_KEY, **values), "entry_authority": b"authority"}


async def test_the_certificate_between_regions_is_opened_and_a_new_one_replaces_it_without_new_pods():
    async with world() as w:
        await w.apply(sentinel(1))
        await eventually(lambda: w.gateway() and w.gateway().available_replicas == 1)
        root = await w.get("deployments", "apps", "sentinel-eu-x", "sentinel")
        for number, private in ((2, "one"), (3, "two")):
            await w.apply(sentinel(number, **entry(private)))
            secret = await w.get("secrets", name="entry-sentinel-eu-x", namespace="sentinel")
            assert base64.b64decode(secret["data"]["tls.key"]).decode() == private
            assert secret["metadata"]["ownerReferences"][0]["uid"] == root["metadata"]["uid"]
        now = await w.get("deployments", "apps", "sentinel-eu-x", "sentinel")
        assert now["metadata"]["generation"] == root["metadata"]["generation"]
        await eventually(lambda: w.gateway().entries and not w.gateway().drift)
        service = await w.get("services", name="sentinel-eu-x", namespace="sentinel")
        assert w.gateway().entries == [f"{service['spec']['clusterIP']}:8043"]


async def test_what_sentinels_say_of_routes_and_have_counted_is_reported_until_their_pods_are_gone(monkeypatch):
    monkeypatch.setattr("shoal.krane.sentinels.leftovers.LOOK_S", 0.1)

    async with world() as w:
        await w.apply(sentinel(1), custom("route/rt_1", 2, "shop-x", ROUTE))
        await eventually(lambda: w.gateway() and w.gateway().available_replicas == 1)
        (pod,) = (await w.of("pods").list(Scope(namespace="sentinel"))).items
        name, peers = pod["metadata"]["name"], "peers-sentinel-eu-x"
        routes = await w.admin.by_kind("SentinelRoute")
        generation = (await routes.get("shop-x", "sentinel"))["metadata"]["generation"]
        entries = [
            {"name": each, "accepted": False, "generation": generation, "message": "Envoy refuses it: no"}
            for each in (name, "sentinel-eu-x-gone", "by-hand")
        ]
        stats = {"v": 1, "at": 1, "deployments": {"dep_1": {"codes": [0, 3, 0, 0, 0]}}}
        owner = await w.get("configmaps", name=peers, namespace="sentinel")
        about = {"name": "stats-sentinel-eu-x", "namespace": "sentinel", **belonging(owner)}
        data = {each: orjson.dumps(stats).decode() for each in (name, "sentinel-eu-x-gone")}
        await w.of("configmaps").create({"metadata": about, "data": data})
        await routes.patch("shop-x", {"status": {"gateways": entries}}, "sentinel", subresource="status")

        def told():
            return [one.sentinel for one in w.gateway("route/rt_1").verdicts]

        await eventually(lambda: told() == ["by-hand", name])

        def counted():
            return set(orjson.loads(w.gateway().stats or b'{"gateways": {}}')["gateways"])

        await eventually(lambda: counted() == {name, "sentinel-eu-x-gone"})
        w.sentinels.observer.delivered(w.gateway())
        await eventually(lambda: counted() == {name})
        await eventually(lambda: not w.gateway("route/rt_1").drift and not w.gateway().drift)

        async def removed():  # once the control plane has got them
            found = await w.get("configmaps", name="stats-sentinel-eu-x", namespace="sentinel")
            return list(found["data"]) == [name]

        await eventually(removed)


async def test_a_sentinel_is_served_at_its_service_and_its_image_runs_when_it_is_rolled_out():
    async with world() as w:
        await w.apply(sentinel(1))
        await eventually(lambda: w.gateway().running_image == "shoal/sentinel:1")
        assert w.gateway().health == pb.SentinelHealth.HEALTHY
        service = await w.get("services", name="sentinel-eu-x", namespace="sentinel")
        assert w.gateway().address == f"{service['spec']['clusterIP']}:8040"
        root = await w.get("deployments", "apps", "sentinel-eu-x", "sentinel")
        assert service["metadata"]["ownerReferences"][0]["uid"] == root["metadata"]["uid"]
        peers = await w.get("configmaps", name="peers-sentinel-eu-x", namespace="sentinel")
        assert orjson.loads(peers["data"]["peers.json"])[0]["region"] == "us"

        old = {each["metadata"]["name"] for each in (await w.of("pods").list(Scope(namespace="sentinel"))).items}
        w.player.play = lambda pod: Play.READY if pod["metadata"]["name"] in old else Play.RUNNING
        await w.apply(sentinel(2, image="shoal/sentinel:2"))
        await eventually(lambda: w.gateway().running_image == "")
        assert w.gateway().health == pb.SentinelHealth.HEALTHY and w.gateway().available_replicas == 1
        w.player.play = lambda pod: Play.READY
        w.player.replay()
        await eventually(lambda: w.gateway().running_image == "shoal/sentinel:2")
        await w.apply(sentinel(3, image="shoal/sentinel:2", replicas=0))
        await eventually(lambda: w.gateway().health == pb.SentinelHealth.PAUSED)


async def test_without_an_image_no_gateway_is_installed_and_the_error_says_where_to_set_one():
    async with world() as w:
        with pytest.raises(GatewayImageMissing, match="--gateway-image") as refused:
            await w.apply(sentinel(1, image=""))
        assert refused.value.reason == "GatewayImageMissing"
        with pytest.raises(GatewayImageMissing):
            await w.apply(sentinel(1, image="shoal/sentinel:latest"))  # what control planes say for none
        assert (await w.of("deployments", "apps").list(Scope(namespace="sentinel"))).items == []
        settings = GatewaySettings(image="registry.example/shoal:1")
        handlers = make_handlers(w.client, clock=RealClock(), random=lambda: 0.5, gateways=settings)(OWNER, PRIVATE_KEY)
        await handlers[StreamKind.SENTINELS].applier.apply(sentinel(1, image=""))
        made = await w.get("deployments", "apps", name="sentinel-eu-x", namespace="sentinel")
        assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/shoal:1"
        await handlers[StreamKind.SENTINELS].applier.apply(sentinel(2, image="registry.example/own:2"))
        made = await w.get("deployments", "apps", name="sentinel-eu-x", namespace="sentinel")
        assert made["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example/own:2"


async def test_a_new_image_of_the_agent_reaches_one_gateway_after_the_other_and_a_bad_one_only_one():
    async with world() as w:

        def agent(image):
            settings = GatewaySettings(image=image)
            sides = make_handlers(w.client, clock=RealClock(), random=lambda: 0.5, gateways=settings)
            return sides(OWNER, PRIVATE_KEY)[StreamKind.SENTINELS]

        async def images():
            found = (await w.of("deployments", "apps").list(Scope(namespace="sentinel"))).items
            return [each["spec"]["template"]["spec"]["containers"][0]["image"] for each in found]

        first = sentinel(1, image="", replicas=1)
        fields = {"sentinel": "snt_2", "workspace": "ws_1", "environment": "env_2", "name": "sentinel-eu-y"}
        other = item("sentinel/snt_2", 2, "sentinel", pb.SentinelState(**fields, replicas=1, region="eu"))
        old = agent("shoal:1").applier
        await old.apply(first)
        await old.apply(other)
        upgraded = agent("shoal:2")
        task = asyncio.create_task(upgraded.observer.run(lambda key: None), name="observer")
        try:
            await eventually(
                lambda: (
                    upgraded.observer.synced
                    and all(upgraded.observer.report(each.key).running_image == "shoal:1" for each in (first, other))
                )
            )
            w.player.play = lambda pod: Play.RUNNING  # the new image never becomes ready
            await upgraded.applier.apply(first)
            with pytest.raises(GatewayWaits, match="sentinel-eu-x"):
                await upgraded.applier.apply(other)
            assert await images() == ["shoal:2", "shoal:1"]
            w.player.play = lambda pod: Play.READY
            w.player.replay()
            await eventually(lambda: upgraded.observer.report(first.key).running_image == "shoal:2")
            await upgraded.applier.apply(other)
            assert await images() == ["shoal:2", "shoal:2"]
        finally:
            await cancel_all(task)


def candidate(**fields):
    return pb.SentinelCandidate(
        **({"revision": 2, "image": "shoal/sentinel:2", "replicas": 1, "resources": pb.Resources()} | fields)
    )


async def sentinel_pods(w):
    """Image and readiness of those that the Service leads to."""
    (service,) = (await w.of("services").list(Scope(namespace="sentinel"))).items
    wanted = ",".join(f"{name}={value}" for name, value in service["spec"]["selector"].items())
    pods = (await w.of("pods").list(Scope(namespace="sentinel", label_selector=wanted))).items
    return sorted(
        (each["spec"]["containers"][0]["image"], each["metadata"]["labels"].get("shoal.dev/candidate", ""))
        for each in pods
        if not each["metadata"].get("deletionTimestamp")
    )


async def test_a_candidate_runs_beside_its_gateway_behind_the_same_service_and_takes_its_place():
    async with world() as w:
        await w.apply(sentinel(1))
        await eventually(lambda: w.gateway().running_image == "shoal/sentinel:1")
        assert w.gateway().splits and w.gateway().candidate is None
        first = await w.get("deployments", "apps", "sentinel-eu-x", "sentinel")
        await w.apply(sentinel(2, candidate=candidate()))
        await eventually(lambda: w.gateway().candidate is not None and w.gateway().candidate.ready == 1)
        assert await sentinel_pods(w) == [("shoal/sentinel:1", ""), ("shoal/sentinel:2", "2")]
        report = w.gateway()
        assert (report.running_image, report.available_replicas) == ("shoal/sentinel:1", 1), "its own are as before"
        assert [report.candidate.revision, report.candidate.replicas, report.drift] == [2, 1, []]
        again = await w.get("deployments", "apps", "sentinel-eu-x", "sentinel")
        assert again["metadata"]["generation"] == first["metadata"]["generation"]
        live = await w.sentinels.applier.live()
        assert live["sentinel/snt_1"].name == "sentinel-eu-x", "the second one stands for nothing"
        # its own pod is replaced while the candidate serves: never more than two, never none
        await w.apply(sentinel(3, image="shoal/sentinel:2", candidate=candidate(covers=True)))
        root = await w.get("deployments", "apps", "sentinel-eu-x", "sentinel")
        assert root["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
        await eventually(lambda: w.gateway().running_image == "shoal/sentinel:2")
        assert await sentinel_pods(w) == [("shoal/sentinel:2", ""), ("shoal/sentinel:2", "2")]
        await w.apply(sentinel(4, image="shoal/sentinel:2", candidate=candidate(replicas=0)))
        await eventually(lambda: w.gateway().candidate is None)
        await eventually(lambda: sentinel_pods(w), until=lambda pods: pods == [("shoal/sentinel:2", "")])
        root = await w.get("deployments", "apps", "sentinel-eu-x", "sentinel")
        assert root["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


async def test_another_candidate_takes_the_place_of_one_that_crashes_and_nothing_is_left_of_either():
    async with world() as w:
        await w.apply(sentinel(1))
        await eventually(lambda: w.gateway().running_image == "shoal/sentinel:1")
        w.player.play = lambda pod: Play.RUNNING if candidate_in(pod) == "2" else Play.READY
        await w.apply(sentinel(2, candidate=candidate()))
        await eventually(lambda: w.gateway().candidate is not None and w.gateway().candidate.replicas == 1)
        (pod,) = [each for each in (await w.of("pods").list(Scope(namespace="sentinel"))).items if candidate_in(each)]
        waiting = {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}
        crashed = {"name": "sentinel", "image": "i", "ready": False, "restartCount": 3, "state": {"waiting": waiting}}
        status = {"phase": "Running", "containerStatuses": [crashed]}
        await w.of("pods").patch(pod["metadata"]["name"], {"status": status}, "sentinel", subresource="status")
        await eventually(lambda: w.gateway().candidate.restarts == 3)
        assert w.gateway().candidate.reason == "CrashLoopBackOff" and w.gateway().reason == ""
        assert w.gateway().health == pb.SentinelHealth.HEALTHY, "its own pod serves"
        await w.apply(sentinel(3, candidate=candidate(revision=3, image="shoal/sentinel:3")))
        await eventually(lambda: w.gateway().candidate.revision == 3 and w.gateway().candidate.ready == 1)
        both = [("shoal/sentinel:1", ""), ("shoal/sentinel:3", "3")]
        await eventually(lambda: sentinel_pods(w), until=lambda pods: pods == both)
        await w.sentinels.applier.delete("sentinel/snt_1", "sentinel", "sentinel-eu-x")
        deployments = w.of("deployments", "apps")
        assert (await deployments.list(Scope(namespace="sentinel"))).items == []


def candidate_in(pod):
    return pod["metadata"].get("labels", {}).get("shoal.dev/candidate", "")


async def test_a_gateway_that_an_earlier_agent_rendered_restarts_only_with_another_image():
    async with world() as w:
        await w.apply(sentinel(1))
        deployments = w.of("deployments", "apps")
        made = await deployments.get("sentinel-eu-x", "sentinel")
        (container,) = made["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["sentinel", "start"]
        recorded = orjson.loads((RECORDED / "rendered_version_1.jsonl").read_bytes().splitlines()[0])[1]
        older = {**made["spec"]["template"]["spec"], "securityContext": {}}
        older["containers"] = [{key: value for key, value in container.items() if key != "args"}]
        older["containers"][0]["securityContext"] = recorded["spec"]["template"]["spec"]["containers"][0][
            "securityContext"
        ]
        patch = [
            {"op": "replace", "path": "/spec/template/spec", "value": older},
            {"op": "remove", "path": "/metadata/annotations/shoal.dev~1render"},
        ]
        await deployments.patch(
            "sentinel-eu-x", patch, "sentinel", type=PatchType.JSON, field_manager=FIELD_MANAGER_KRANE
        )
        await eventually(lambda: w.gateway().drift)
        await w.apply(sentinel(2))
        kept = (await deployments.get("sentinel-eu-x", "sentinel"))["spec"]["template"]["spec"]
        assert "args" not in kept["containers"][0]
        assert kept["containers"][0]["securityContext"]["capabilities"] == {"drop": ["NET_RAW"]}
        await w.apply(sentinel(3, image="shoal/sentinel:2"))
        newer = (await deployments.get("sentinel-eu-x", "sentinel"))["spec"]["template"]["spec"]
        assert newer["containers"][0]["args"] == ["sentinel", "start"]
        assert newer["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


async def test_where_nodes_run_programs_gateways_need_no_image():
    async with world() as w:
        nodes = w.of("nodes")
        node = await nodes.get("node-1")
        await nodes.replace_status({**node, "status": {"nodeInfo": {"containerRuntimeVersion": "process://1"}}})
        await w.apply(sentinel(1, image=""))
        await eventually(lambda: w.gateway().running_image == "shoal/sentinel:latest")


async def test_a_sentinel_whose_deployment_was_deleted_comes_back_at_its_address():
    async with world() as w:
        await w.apply(sentinel(1))
        await eventually(lambda: w.gateway().address != "")
        address = w.gateway().address
        for _ in range(2):
            await w.of("deployments", "apps").delete("sentinel-eu-x", "sentinel")
            await eventually(lambda: w.sentinels.observer.report("sentinel/snt_1") is None)

            async def without_service() -> bool:
                found = await w.of("services").list(Scope(namespace="sentinel"))
                return not found.items

            await eventually(without_service)
            await w.of("services").create(a_service("other"), "sentinel")  # it would get the next free address
            await w.apply(sentinel(1))
            await eventually(lambda: w.sentinels.observer.report("sentinel/snt_1") and w.gateway().address == address)
            await w.of("services").delete("other", "sentinel")
        w.requests.written()
        await w.apply(sentinel(1))
        assert w.requests.written() == []


async def test_a_sentinel_comes_back_at_another_address_when_another_service_has_its_own():
    async with world() as w:
        await w.apply(sentinel(1))
        await eventually(lambda: w.gateway().address != "")
        taken = w.gateway().address.partition(":")[0]
        await w.of("deployments", "apps").delete("sentinel-eu-x", "sentinel")

        async def taken_by_another() -> bool:
            try:
                await w.of("services").create(a_service("other", clusterIP=taken), "default")
            except Invalid:
                return False
            return True

        await eventually(taken_by_another)
        await eventually(lambda: w.sentinels.observer.report("sentinel/snt_1") is None)
        await w.apply(sentinel(1))
        await eventually(lambda: w.gateway().address not in ("", f"{taken}:8040"))


def a_service(name: str, **spec: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


async def test_gateways_come_back_after_their_namespace_was_deleted_with_the_agents_rights_in_it():
    async with world(controllers=CONTROLLERS[:2]) as w:
        await w.apply(sentinel(1))
        await w.of("namespaces").delete("sentinel")
        await eventually(lambda: w.sentinels.observer.report("sentinel/snt_1") is None)

        async def applied() -> bool:
            try:
                await w.apply(sentinel(2))
            except ApiError:
                return False
            return True

        await eventually(applied)
        await eventually(lambda: w.gateway().address != "")
        assert await w.get("roles", "rbac.authorization.k8s.io", "shoal-sentinel", "sentinel")


async def test_a_sentinel_is_deleted_part_by_part_and_leaves_nothing():
    async with world(controllers=CONTROLLERS[:2]) as w:
        await w.apply(sentinel(1, **entry()))
        await eventually(lambda: w.gateway().available_replicas == 1)
        w.requests.uses.clear()
        await w.sentinels.applier.delete("sentinel/snt_1", "", "")
        await w.sentinels.applier.delete("sentinel/snt_1", "sentinel", "sentinel-eu-x")
        deleted = [plural for verb, _, plural, _ in w.requests.uses if verb == "delete"]
        assert deleted == [
            "deployments", "services", "poddisruptionbudgets", "configmaps", "secrets", "serviceaccounts",
        ]  # fmt: skip
        assert w.sentinels.observer.report("sentinel/snt_1") is None or await eventually(
            lambda: w.sentinels.observer.report("sentinel/snt_1") is None
        )


async def test_drift_of_sentinels_and_routes_is_reported_and_put_back():
    async with world(controllers=()) as w:
        route = custom("route/rt_1", 2, "shop-x", ROUTE)
        await w.apply(sentinel(1), route)
        await eventually(lambda: w.gateway() and w.gateway("route/rt_1"))
        await w.of("services").delete("sentinel-eu-x", "sentinel")
        await eventually(lambda: w.gateway().drift == ["Service.(deleted)"])
        routes = await w.admin.by_kind("SentinelRoute")
        await routes.patch(
            "shop-x", {"spec": {"host": "evil.example", "path": "/x"}}, "sentinel", field_manager="somebody"
        )
        await eventually(
            lambda: set(w.gateway("route/rt_1").drift) == {"SentinelRoute.spec.host", "SentinelRoute.spec.path"}
        )
        await w.apply(sentinel(1), route)
        await eventually(lambda: not w.gateway().drift and not w.gateway("route/rt_1").drift)
        assert (await routes.get("shop-x", "sentinel"))["spec"] == orjson.loads(ROUTE)


async def test_routes_policies_and_keys_come_and_go():
    async with world(controllers=()) as w:
        policy = orjson.dumps({"environment": "env_1", "requestSize": {"maxBytes": 100}})
        keys = orjson.dumps({"keys": [{"id": "key_1", "name": "ci", "digest": "ab12", "spec": {}}]})
        items = [
            custom("route/rt_1", 1, "shop-x", ROUTE),
            custom("policy/po_1", 2, "size-x", policy),
            custom("keys/env_1", 3, "keys", keys),
        ]
        await w.apply(*items)
        live = await w.sentinels.applier.live()
        assert {key: found.version.number for key, found in live.items()} == {
            "route/rt_1": 1,
            "policy/po_1": 2,
            "keys/env_1": 3,
        }
        await eventually(lambda: set(w.sentinels.observer.keys()) == set(live))
        secret = await w.get("secrets", name="keys-env-1", namespace="sentinel")
        assert list(secret["data"]) == ["key_1"]
        w.requests.written()
        await w.apply(*items)
        assert w.requests.written() == []
        with pytest.raises(Newer):
            await w.apply(custom("policy/po_1", 1, "size-x", policy))
        for key in live:
            await w.sentinels.applier.delete(key, "", "")
        assert await w.sentinels.applier.live() == {}
        await eventually(lambda: not set(w.sentinels.observer.keys()))


async def test_the_certificate_of_a_route_comes_changes_and_goes_with_it():
    async with world(controllers=()) as w:

        def secure(number, **values):
            found = custom("route/rt_1", number, "shop-x", ROUTE)
            found.action.value.tls = sealed(number, PUBLIC_KEY, **values) if values else None
            return found

        async def content():
            secret = await w.get("secrets", name="tls-shop-x", namespace="sentinel")
            return {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}

        await w.apply(secure(1, TLS_CRT="one", TLS_KEY="k"))
        assert await content() == {"tls.crt": "one", "tls.key": "k"}
        routes = await w.admin.by_kind("SentinelRoute")
        assert (await routes.get("shop-x", "sentinel"))["spec"]["tls"] == {"secret": "tls-shop-x"}
        await w.apply(secure(2, TLS_CRT="two", TLS_KEY="k"))
        assert (await content())["tls.crt"] == "two"
        with pytest.raises(Invalid, match="TLS_KEY"):
            await w.apply(secure(3, TLS_CRT="two"))
        await eventually(lambda: w.gateway("route/rt_1") and not w.gateway("route/rt_1").drift)
        await w.apply(secure(4))
        with pytest.raises(NotFound):
            await content()
        await w.apply(secure(5, TLS_CRT="one", TLS_KEY="k"))
        await w.sentinels.applier.delete("route/rt_1", "", "")
        with pytest.raises(NotFound):
            await content()


async def test_what_sentinels_share_is_made_again_when_somebody_removes_it():
    async with world(controllers=(), observe=False) as w:
        await w.apply(custom("route/rt_1", 1, "shop-x", ROUTE))
        await w.of("customresourcedefinitions", "apiextensions.k8s.io").delete("sentinelroutes.sentinel.shoal.dev")

        async def applied():
            try:
                await w.apply(custom("route/rt_1", 1, "shop-x", ROUTE))
            except ApiError:
                return False
            return "route/rt_1" in await w.sentinels.applier.live()

        await eventually(applied)


async def test_a_sentinel_may_read_what_it_needs_and_nothing_else():
    from krane_world import InProcessTransport, User

    from shoal.client import Client

    async with world(controllers=()) as w:
        await w.apply(sentinel(1), deployment(2, secrets=[sealed(1, PUBLIC_KEY, A="1")]))
        who = User(
            "system:serviceaccount:sentinel:sentinel-eu-x", ("system:serviceaccounts:sentinel", "system:authenticated")
        )
        client = Client(InProcessTransport(w.server.server.handler, who), clock=RealClock())
        inside, everywhere = Scope(namespace="sentinel"), Scope()
        await client.resource("sentinel.shoal.dev", "v1", "sentinelroutes").list(inside)
        await client.resource("sentinel.shoal.dev", "v1", "sentinelpolicies").list(inside)
        await client.of(builtin("secrets")).list(inside)
        await client.of(builtin("configmaps")).list(inside)
        await client.of(builtin("endpointslices", "discovery.k8s.io")).list(everywhere)
        with pytest.raises(NotFound):  # it may read its own node, and cannot be told which that is
            await client.of(builtin("nodes")).get("somewhere")
        for kind, scope in (
            ("nodes", everywhere),
            ("secrets", Scope(namespace=NAMESPACE)),
            ("pods", inside),
            ("configmaps", everywhere),
        ):
            with pytest.raises(Forbidden):
                await client.of(builtin(kind)).list(scope)


# a whole cluster


async def test_on_a_whole_cluster_instances_show_their_nodes_zones_and_resources(tmp_path):
    async with embedded_cluster(tmp_path, nodes=3) as cluster:
        nodes = cluster.client.of(builtin("nodes"))

        async def registered():
            return len((await nodes.list()).items) == 3

        await eventually(registered, timeout_s=30)
        for number, node in enumerate((await nodes.list()).items):
            zone = {"metadata": {"labels": {"topology.kubernetes.io/zone": f"z{number}"}}}
            await nodes.patch(node["metadata"]["name"], zone)
        side = make_handlers(cluster.client, clock=RealClock(), random=lambda: 0.5)(OWNER, PRIVATE_KEY)[
            StreamKind.DEPLOYMENTS
        ]
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(side.observer.run(lambda key: None), name="observer")
            await side.applier.apply(
                deployment(1, replicas=3, resources=pb.Resources(cpu_millicores=100, memory_mib=64))
            )

            def ready():
                found = side.observer.report(KEY)
                return found is not None and [each.ready for each in found.instances] == [True] * 3

            await eventually(ready, timeout_s=30)
            found = side.observer.report(KEY)
            assert {each.zone for each in found.instances} == {"z0", "z1", "z2"}
            assert len({each.node for each in found.instances}) == 3
            assert {(each.cpu_millicores, each.memory_mib) for each in found.instances} == {(100, 64)}
            watching.cancel()


# checks of rollouts


async def test_a_check_runs_as_a_job_beside_the_deployment_and_goes_when_it_is_not_listed_any_more():
    job = pb.CheckJob(id="check-smoke-abc", check="smoke", image="shop/smoke:1", timeout_seconds=60)

    async def end(**status):
        await w.of("jobs", "batch").patch(job.id, {"status": status}, NAMESPACE, subresource="status")

    def result():
        return w.report.check_jobs[0].state if w.report.check_jobs else None

    async with world() as w:
        await w.apply(deployment(1, check_jobs=[job]))
        await w.ready()
        assert result() == pb.CheckJobState.RUNNING
        made = await w.get("jobs", "batch", name=job.id)
        assert made["spec"]["template"]["spec"]["serviceAccountName"] == NAME
        w.changed.clear()
        now = "2027-03-01T10:00:00Z"
        await end(startTime=now, conditions=[
            {"type": each, "status": "True", "reason": "DeadlineExceeded"} for each in ("FailureTarget", "Failed")
        ])  # fmt: skip
        await eventually(lambda: result() == pb.CheckJobState.TIMED_OUT, timeout_s=15)
        assert KEY in w.changed
        assert len(w.report.instances) == 2, "its pods are no instances"
        again = w.handlers(OWNER)[StreamKind.DEPLOYMENTS]  # an agent that is started again finds it
        observing = asyncio.create_task(again.observer.run(lambda key: None), name="observer")
        await eventually(lambda: again.observer.synced and again.observer.report(KEY).check_jobs, timeout_s=15)
        observing.cancel()
        await w.apply(deployment(2))
        assert not w.report.check_jobs
        with pytest.raises(NotFound):
            await w.get("jobs", "batch", name=job.id)


async def test_an_agent_without_the_right_to_run_jobs_says_so_and_runs_the_deployment():
    rules = [*rbac.manifests()]
    for each in rules:
        each["rules"] = [rule for rule in each.get("rules") or () if rule["apiGroups"] != ["batch"]]
        if not each["rules"]:
            del each["rules"]
    async with world(manifests=rules) as w:
        await w.apply(
            deployment(1, check_jobs=[pb.CheckJob(id="check-a", check="a", image="shop/smoke:1", timeout_seconds=60)])
        )
        await w.ready()
        (found,) = w.report.check_jobs
        assert found.state == pb.CheckJobState.BROKEN and "shoal krane manifests" in found.message
        await w.apply(deployment(2))
        assert not w.report.check_jobs
