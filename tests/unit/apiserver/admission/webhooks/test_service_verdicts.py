"""What hooks are told, and what their answers do to a write."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from webhook_steps import CONFIGMAPS, PODS, configure, create, pod, store_trusted

from shoal.kube.objects import Obj
from shoal.testing.servers import local_server
from shoal.testing.webhooks import (
    allowed,
    denied,
    hook,
    mutating,
    patched,
    rule,
    validating,
    webhook_server,
)

EVERYTHING = rule("*/*", operations=["*"], groups=["*"], versions=["*"])


def add(path: str, value: Any) -> Obj:
    return {"op": "add", "path": path, "value": value}


@pytest.mark.parametrize(
    ("reply", "code", "reason", "message"),
    [
        (denied("not today"), 400, None, ": not today"),
        (denied(), 400, None, " without explanation"),
        (denied(reason="Forbidden"), 400, "Forbidden", ": Forbidden"),
        (denied("no", code=403, reason="Forbidden"), 403, "Forbidden", ": no"),
        (denied("busy", code=429, reason="TooManyRequests"), 429, "TooManyRequests", ": busy"),
        (denied("odd", code=200), 400, None, ": odd"),
        ({"allowed": "yes"}, 400, None, " without explanation"),
    ],
)
async def test_a_denial_has_the_hooks_code_reason_and_message(
    reply: Obj, code: int, reason: str | None, message: str
) -> None:
    async with webhook_server({"/": lambda review: reply}) as hooks, local_server() as server:
        await configure(server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"))))
        answer = await create(server)
        assert answer.status == answer.json["code"] == code
        assert answer.json.get("reason") == reason
        assert answer.json["message"] == f'admission webhook "v.example.com" denied the request{message}'
        assert (await server.call("GET", f"{CONFIGMAPS}/a")).status == 404


async def test_a_mutating_hook_can_deny_too() -> None:
    async with webhook_server({"/": lambda review: denied("no")}) as hooks, local_server() as server:
        await configure(server, mutating("m", hook("m.example.com", hooks, "/", rule("configmaps"))))
        answer = await create(server)
        assert answer.json["message"] == 'admission webhook "m.example.com" denied the request: no'


async def test_a_review_describes_the_write_completely() -> None:
    async with webhook_server({"/": lambda review: allowed()}) as hooks, local_server() as server:
        await configure(
            server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps", operations=["*"])))
        )
        (await create(server, data={"a": "1"})).ok()
        await server.patch(f"{CONFIGMAPS}/a?fieldManager=me", {"data": {"a": "2"}})
        await server.call("DELETE", f"{CONFIGMAPS}/a?propagationPolicy=Background")
        created, updated, deleted = hooks.asked("/")
        kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
        resource = {"group": "", "version": "v1", "resource": "configmaps"}
        for request in (created, updated, deleted):
            assert (request["kind"], request["requestKind"]) == (kind, kind)
            assert (request["resource"], request["requestResource"]) == (resource, resource)
            assert (request["name"], request["namespace"]) == ("a", "default")
            assert request["userInfo"]["username"] == "admin"
            assert "system:masters" in request["userInfo"]["groups"]
            assert request["dryRun"] is False
            assert "subResource" not in request
        assert len({request["uid"] for request in (created, updated, deleted)}) == 3
        assert [r["operation"] for r in (created, updated, deleted)] == ["CREATE", "UPDATE", "DELETE"]
        assert created["oldObject"] is None and created["object"]["data"] == {"a": "1"}
        assert (created["object"]["kind"], created["object"]["apiVersion"]) == ("ConfigMap", "v1")
        assert updated["oldObject"]["data"] == {"a": "1"} and updated["object"]["data"] == {"a": "2"}
        assert deleted["object"] is None and deleted["oldObject"]["data"] == {"a": "2"}
        assert created["options"]["kind"] == "CreateOptions"
        assert updated["options"]["kind"] == "PatchOptions" and updated["options"]["fieldManager"] == "me"
        assert deleted["options"]["kind"] == "DeleteOptions"
        assert deleted["options"]["propagationPolicy"] == "Background"


async def test_subresources_are_named() -> None:
    async with webhook_server({"/": lambda review: denied("no")}) as hooks, local_server() as server:
        await server.post(PODS, pod())
        await configure(
            server, validating("v", hook("v.example.com", hooks, "/", rule("pods/status", operations=["UPDATE"])))
        )
        answer = await server.call(
            "PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}},
            {"content-type": "application/merge-patch+json"},
        )  # fmt: skip
        assert answer.status == 400
        [request] = hooks.asked("/")
        assert (request["subResource"], request["requestSubResource"]) == ("status", "status")
        await server.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
        assert len(hooks.asked("/")) == 1


async def test_hooks_run_in_order_of_configuration_then_place_and_see_each_other() -> None:
    def stage(name: str) -> Any:
        def handle(review: Obj) -> Obj:
            seen = review["object"].get("data") or {}
            return patched(add("/data", {**seen, name: ",".join(sorted(seen))}))

        return handle

    async with (
        webhook_server({f"/{name}": stage(name) for name in "abc"}) as hooks,
        local_server() as server,
    ):
        second = mutating("m2", hook("c.example.com", hooks, "/c", rule("configmaps")))
        first = mutating(
            "m1",
            hook("a.example.com", hooks, "/a", rule("configmaps")),
            hook("b.example.com", hooks, "/b", rule("configmaps")),
        )
        await configure(server, second)
        await configure(server, first)
        assert (await create(server)).ok()["data"] == {"a": "", "b": "a", "c": "a,b"}


async def test_validating_hooks_are_asked_at_the_same_time() -> None:
    together = asyncio.Barrier(3)

    async def meet(review: Obj) -> Obj:
        await together.wait()
        return allowed()

    async with webhook_server({"/": meet}) as hooks, local_server() as server:
        three = [hook(f"v{i}.example.com", hooks, "/", rule("configmaps")) for i in range(3)]
        await configure(server, validating("v", *three))
        (await create(server)).ok()


async def test_defaults_and_validation_come_after_mutation() -> None:
    container = {"name": "added", "image": "busybox"}
    async with (
        webhook_server({"/": lambda review: patched(add("/spec/initContainers", [container]))}) as hooks,
        local_server() as server,
    ):
        for name in ("before-1", "before-2"):  # what is known of their spec must not be used any more
            await server.post(PODS, pod(name))
        hooks.handlers["/look"] = lambda review: allowed()
        await configure(
            server,
            mutating(
                "m",
                hook("m.example.com", hooks, "/", rule("pods")),
                hook("n.example.com", hooks, "/look", rule("pods")),
            ),
        )
        made = await server.post(PODS, pod())
        [seen] = hooks.asked("/look")[0]["object"]["spec"]["initContainers"]
        assert seen["terminationMessagePolicy"] == "File"
        assert made["spec"]["initContainers"][0]["terminationMessagePolicy"] == "File"
        assert made["spec"]["initContainers"][0]["imagePullPolicy"] == "Always"
        hooks.handlers["/"] = lambda review: patched(add("/spec/initContainers", [{"name": "NO!"}]))
        answer = await server.call("POST", PODS, pod("q"))
        assert answer.status == 422
        hooks.handlers["/"] = lambda review: patched(add("/spec/nonsense", 1), add("/metadata/labels", {"a": "b"}))
        made = await server.post(PODS, pod("q"))
        assert made["metadata"]["labels"] == {"a": "b"} and "nonsense" not in made["spec"]
        hooks.handlers["/"] = lambda review: patched(add("/metadata/name", "other"))
        assert (await server.post(PODS, pod("kept")))["metadata"]["name"] == "kept"


async def test_a_patch_that_does_not_apply_refuses_the_write() -> None:
    async with (
        webhook_server({"/": lambda review: patched({"op": "remove", "path": "/data/none"})}) as hooks,
        local_server() as server,
    ):
        await configure(
            server, mutating("m", hook("m.example.com", hooks, "/", rule("configmaps"), failurePolicy="Ignore"))
        )
        answer = await create(server)
        assert (answer.status, answer.json["reason"]) == (500, "InternalError")


async def test_a_deletion_cannot_be_changed() -> None:
    async with webhook_server({"/": lambda review: patched(add("/data", {}))}) as hooks, local_server() as server:
        (await create(server)).ok()
        await configure(
            server, mutating("m", hook("m.example.com", hooks, "/", rule("configmaps", operations=["DELETE"])))
        )
        answer = await server.call("DELETE", f"{CONFIGMAPS}/a")
        assert answer.status == 500
        assert answer.json["message"] == (
            'Internal error occurred: admission webhook "m.example.com" attempted to modify the object, '
            "which is not supported for this operation"
        )


@pytest.mark.parametrize(("policy", "times"), [("IfNeeded", 2), ("Never", 1)])
async def test_a_hook_is_asked_again_when_a_later_one_changed_the_object(policy: str, times: int) -> None:
    async with (
        webhook_server(
            {"/first": lambda review: allowed(), "/second": lambda review: patched(add("/data", {"second": "1"}))}
        ) as hooks,
        local_server() as server,
    ):
        await configure(
            server,
            mutating(
                "m",
                hook("first.example.com", hooks, "/first", rule("configmaps"), reinvocationPolicy=policy),
                hook("second.example.com", hooks, "/second", rule("configmaps")),
            ),
        )
        (await create(server)).ok()
        asked = hooks.asked("/first")
        assert len(asked) == times
        assert asked[-1]["object"].get("data") == ({"second": "1"} if times == 2 else None)
        assert len(hooks.asked("/second")) == 1


async def test_hooks_are_not_called_again_when_nothing_changed() -> None:
    async with webhook_server({"/": lambda review: allowed()}) as hooks, local_server() as server:
        eager = [
            hook(f"m{i}.example.com", hooks, "/", rule("configmaps"), reinvocationPolicy="IfNeeded") for i in range(2)
        ]
        await configure(server, mutating("m", *eager))
        (await create(server)).ok()
        assert len(hooks.asked("/")) == 2


async def test_warnings_reach_the_client_once_and_also_with_a_denial() -> None:
    handlers = {"/": lambda review: allowed("careful", "careful")}
    async with webhook_server(handlers) as hooks, local_server() as server:
        await configure(server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"))))
        answer = await create(server)
        assert answer.status == 201
        assert answer.headers["warning"].count("careful") == 1
        hooks.handlers["/"] = lambda review: denied("no", warnings=["told you"])
        answer = await create(server, "b")
        assert answer.status == 400
        assert answer.headers["warning"] == '299 - "told you"'


async def test_dry_runs_are_marked_and_refused_for_hooks_with_side_effects() -> None:
    async with webhook_server({"/": lambda review: allowed()}) as hooks, local_server() as server:
        await configure(
            server,
            validating("v", hook("v.example.com", hooks, "/", rule("configmaps"), sideEffects="NoneOnDryRun")),
        )
        (await create(server, target=f"{CONFIGMAPS}?dryRun=All")).ok()
        [request] = hooks.asked("/")
        assert request["dryRun"] is True and request["options"]["dryRun"] == ["All"]
        old = validating("w", hook("w.example.com", hooks, "/", rule("configmaps"), sideEffects="Some"))
        plural = "validatingwebhookconfigurations"
        await store_trusted(server, "admissionregistration.k8s.io", "v1", plural, old)
        answer = await create(server, target=f"{CONFIGMAPS}?dryRun=All")
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert answer.json["message"] == 'admission webhook "w.example.com" does not support dry run'
        (await create(server)).ok()


async def test_hooks_that_list_an_old_review_version_first_get_it() -> None:
    answers = {"allowed": True, "uid": "", "patch": patched(add("/data", {"a": "b"}))["patch"]}  # no patchType
    async with webhook_server({"/": lambda review: answers}) as hooks, local_server() as server:
        old = hook("m.example.com", hooks, "/", rule("configmaps"), admissionReviewVersions=["v1beta1", "v1"])
        await configure(server, mutating("m", old))
        assert (await create(server)).ok()["data"] == {"a": "b"}
        assert hooks.reviews[0][1]["apiVersion"] == "admission.k8s.io/v1beta1"


async def test_configurations_follow_their_changes_and_are_not_subject_to_themselves() -> None:
    async with webhook_server({"/": lambda review: denied("all of it")}) as hooks, local_server() as server:
        target = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        await configure(server, validating("v", hook("v.example.com", hooks, "/", EVERYTHING)))
        assert (await create(server)).status == 400
        narrow = [{"op": "replace", "path": "/webhooks/0/rules/0/operations", "value": ["DELETE"]}]
        await server.patch(f"{target}/v", narrow, "json")
        (await create(server)).ok()
        assert (await server.call("DELETE", f"{CONFIGMAPS}/a")).status == 400
        await server.delete(f"{target}/v")
        await server.delete(f"{CONFIGMAPS}/a")


async def test_hooks_of_stored_configurations_are_there_from_the_start(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with webhook_server({"/": lambda review: denied("no")}) as hooks:
        async with local_server(url) as server:
            await configure(server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"))))
        async with local_server(url) as server:
            assert (await create(server)).status == 400


async def test_custom_objects_are_pruned_after_mutation() -> None:
    schema = {
        "type": "object",
        "properties": {"data": {"type": "object", "properties": {"known": {"type": "string"}}}},
    }
    definition = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }

    grown = patched(add("/data", {"known": "1", "unknown": "2"}))
    async with webhook_server({"/": lambda review: grown}) as hooks, local_server() as server:
        await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        things = rule("things", groups=["example.com"])
        await configure(server, mutating("m", hook("m.example.com", hooks, "/", things)))
        target = "/apis/example.com/v1/namespaces/default/things"
        thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}}
        assert (await server.post(target, thing))["data"] == {"known": "1"}
