"""The manager's account allows all its requests, and its requests use all that the account allows."""

from __future__ import annotations

import re
from typing import Any

from shard_world import NAMESPACE, World, manager_of, world
from test_shard_sweep import kind, website

from shoal.apiserver.inprocess import InProcessTransport
from shoal.apiserver.user import User
from shoal.client import builtin
from shoal.errors import AlreadyExists, Invalid
from shoal.sharding import rbac
from shoal.sharding.manifests import epoch_policy, manifests
from shoal.testing.waiting import eventually

Use = tuple[str, str, str]  # verb, group, resource

ACCOUNT = User(
    f"system:serviceaccount:{rbac.NAMESPACE}:{rbac.MANAGER}",
    ("system:serviceaccounts", f"system:serviceaccounts:{rbac.NAMESPACE}", "system:authenticated"),
)
KINDS = [rbac.TargetKind("example.com", "websites"), rbac.TargetKind("", "configmaps", controlled=True)]
TEMPLATE = {"spec": {"containers": [{"name": "w", "image": "w:1"}]}}

_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Recording:
    """A transport that records requests, of a server without watch lists."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner
        self.uses: set[Use] = set()
        self.refused: list[str] = []

    async def request(self, method: str, target: str, *, headers: Any = None, body: bytes = b"") -> Any:
        self._note(method, target)
        reply = await self._inner.request(method, target, headers=headers, body=body)
        if reply.status == 403:
            self.refused.append(f"{method} {target}")
        return reply

    async def stream(self, method: str, target: str, *, headers: Any = None) -> Any:
        if "sendInitialEvents" in target:
            raise Invalid("sendInitialEvents: Forbidden: is not known")
        self._note(method, target)
        return await self._inner.stream(method, target, headers=headers)

    async def close(self) -> None:
        await self._inner.close()

    def _note(self, method: str, target: str) -> None:
        path, _, query = target.partition("?")
        found = _PATH.fullmatch(path)
        if found is None:
            return  # discovery
        verb = _VERBS.get(method) or ("watch" if "watch=true" in query else "get" if found["name"] else "list")
        plural = found["plural"] + (f"/{found['sub']}" if found["sub"] else "")
        self.uses.add((verb, found["group"] or "", plural))


def allowed(rules: Any) -> set[Use]:
    return {
        (verb, group, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_manifests_of_other_kinds_take_no_rights_away() -> None:
    """As two administrators apply them, each for the kinds of one controller."""
    objects: dict[tuple[str, str, str], Any] = {}
    for kinds in (KINDS, [rbac.TargetKind("example.com", "tenants"), rbac.TargetKind("", "configmaps")]):
        for obj in manifests(kinds, worker_namespaces=[NAMESPACE]):
            about = obj["metadata"]
            objects[obj["kind"], about.get("namespace", ""), about["name"]] = obj

    def rights(account: str) -> set[Use]:
        found: set[Use] = set()
        for obj in objects.values():
            if obj["kind"] == "ClusterRoleBinding" and obj["subjects"][0]["name"] == account:
                found |= allowed(objects["ClusterRole", "", obj["roleRef"]["name"]]["rules"])
        return found

    everything = [*KINDS, rbac.TargetKind("example.com", "tenants"), rbac.TargetKind("", "configmaps")]
    assert allowed(rbac.sweep_rules(everything)) <= rights(rbac.MANAGER)
    assert allowed(rbac.target_rules(everything)) <= rights(rbac.WORKER)


async def prepared(w: World, objects: list[Any]) -> None:
    for obj in objects:
        resource = w.client.of(builtin(obj["kind"], obj["apiVersion"].rpartition("/")[0]))
        try:
            await resource.create(obj)
        except AlreadyExists:
            continue


async def test_the_managers_rights_are_enough_and_all_of_them_are_used() -> None:
    async with world(manager=False) as w:
        websites = await kind(w, "Website", "websites")
        await prepared(w, manifests(KINDS, image="shoal:1"))
        owner = await websites.create(website("site"))
        reference = {
            "apiVersion": "example.com/v1", "kind": "Website", "name": "site", "uid": owner["metadata"]["uid"],
            "controller": True,
        }  # fmt: skip
        child = {"metadata": {"name": "child", "namespace": NAMESPACE, "ownerReferences": [reference]}}
        await w.client.of(builtin("configmaps")).create(child)
        recording = Recording(InProcessTransport(w.server.server.handler, ACCOUNT))
        async with manager_of(
            w, elected="only", transport=recording, kept_s=0.2, period_s=0.5, namespace=rbac.NAMESPACE
        ):
            targets = [{"group": "example.com", "kind": "Website", "controlled": [{"kind": "ConfigMap"}]}]
            await w.config(
                "web",
                minShards=2,
                maxShards=2,
                template=TEMPLATE,
                targets=targets,
                leaseDuration="2s",
                heartbeatInterval="500ms",
            )
            players = w.pod_workers("web", lease_s=2)
            await eventually(lambda: len(players.workers) == 2)
            await w.shared_by("web", *players.workers)
            for worker in players.workers.values():
                worker.memory = dict.fromkeys(range(1024), b"x")
            bounds = {"minShards": 1, "maxShards": 1}
            await w.configs.patch("web", {"spec": bounds}, NAMESPACE)
            await eventually(lambda: len(players.workers) == 1)
            (left,) = players.workers.values()
            for _ in range(2):  # the same again is a patch of the event
                await eventually(lambda: holder_is(w, left.shard, f"{left.shard}_{left.term}"))
                await left.kill()
                await eventually(lambda: holder_is(w, left.shard, "shard-manager"))
                left.start()
            everything = allowed((*rbac.MANAGER_RULES, *rbac.ELECTION_RULES, *rbac.sweep_rules(KINDS)))
            await eventually(lambda: unused(everything, recording), timeout_s=20.0)
            assert recording.uses <= everything
            assert not recording.refused


def unused(everything: set[Use], recording: Recording) -> bool:
    missing = sorted(everything - recording.uses)
    assert not missing, missing
    return True


async def holder_is(w: World, shard: str, holder: str) -> bool:
    return bool((await w.leases.get(shard, NAMESPACE))["spec"]["holderIdentity"] == holder)


def test_nothing_is_allowed_with_a_wildcard() -> None:
    for rule in (*rbac.MANAGER_RULES, *rbac.ELECTION_RULES, *rbac.WORKER_RULES, *rbac.target_rules(KINDS)):
        assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])


async def test_the_policy_refuses_writes_of_an_older_epoch_and_other_slots() -> None:
    async with world(manager=False) as w:
        websites = await kind(w, "Website", "websites")
        await prepared(w, epoch_policy("web", KINDS))
        await websites.create(website("site", **{"slot.shard.io/web": "5"}))

        async def write(epoch: str | None, slot: str | None = "5") -> int:
            patch = {"metadata": {"annotations": {"epoch.shard.io/web": epoch}, "labels": {"slot.shard.io/web": slot}}}
            path = f"/apis/example.com/v1/namespaces/{NAMESPACE}/websites/site"
            headers = {"content-type": "application/merge-patch+json"}
            return (await w.server.call("PATCH", path, patch, headers)).status

        async def works() -> bool:
            return await write("7", "6") == 403

        await eventually(works)
        answers = [await write(epoch) for epoch in ("7", "8", "7", "10", "9", None, "10")]
        assert answers == [200, 200, 403, 200, 403, 403, 200]
        assert await write("10", None) == 403
