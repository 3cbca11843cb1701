"""Hooks that cannot be reached, do not answer, or answer nonsense; with both failure policies."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
import pytest
from webhook_steps import CONFIGMAPS, configure, create, store_trusted

from shoal.apiserver.messages import Response
from shoal.app.ports import any_free
from shoal.base.clock import FakeClock
from shoal.kube.objects import Obj
from shoal.testing.servers import LocalServer, ServerAnswer, local_server
from shoal.testing.waiting import eventually
from shoal.testing.webhooks import (
    HookHandler,
    WebhookServer,
    allowed,
    hook,
    mutating,
    patched,
    rule,
    validating,
    webhook_server,
)

FAILED = 'Internal error occurred: failed calling webhook "v.example.com": '


def check_closed(answer: ServerAnswer, why: str) -> None:
    """The write was refused as a fault of the server, in Kubernetes' words."""
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    assert answer.json["message"].startswith(FAILED)
    assert why in answer.json["message"]
    assert answer.json["details"]["causes"] == [{"message": answer.json["message"].partition("occurred: ")[2]}]


async def check_both_policies(server: LocalServer, broken: Obj, why: str) -> None:
    await configure(server, validating("v", broken))
    check_closed(await create(server), why)
    open_ = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    await server.patch(
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v", open_, "json"
    )  # fmt: skip
    (await create(server)).ok()


async def test_the_port_is_closed() -> None:
    async with webhook_server({}) as hooks, local_server() as server:
        port = any_free("127.0.0.1")
        config = {"url": f"https://127.0.0.1:{port}/x", "caBundle": hooks.ca_bundle}
        broken = hook("v.example.com", hooks, "/x", rule("configmaps"), clientConfig=config)
        why = (
            f'failed to call webhook: Post "https://127.0.0.1:{port}/x?timeout=5s": '
            f"dial tcp 127.0.0.1:{port}: connect: connection refused"
        )
        await check_both_policies(server, broken, why)


async def test_the_name_is_not_known() -> None:
    async with webhook_server({}) as hooks, local_server() as server:
        config = {"url": "https://nowhere.invalid/x", "caBundle": hooks.ca_bundle}
        broken = hook("v.example.com", hooks, "/x", rule("configmaps"), clientConfig=config)
        await check_both_policies(server, broken, "dial tcp: lookup nowhere.invalid: no such host")


async def test_the_certificate_is_not_trusted() -> None:
    async with webhook_server({}) as other, webhook_server({"/": lambda review: allowed()}) as hooks:
        async with local_server() as server:
            config = {**hooks.client_config("/"), "caBundle": other.ca_bundle}
            broken = hook("v.example.com", hooks, "/", rule("configmaps"), clientConfig=config)
            why = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
            await check_both_policies(server, broken, why)
        async with local_server() as server:
            config = {"url": hooks.client_config("/")["url"]}  # the machine's own roots do not know it either
            broken = hook("v.example.com", hooks, "/", rule("configmaps"), clientConfig=config)
            await check_both_policies(server, broken, why)
        assert hooks.reviews == []


async def test_the_certificate_is_for_another_name() -> None:
    async with webhook_server({"/": lambda review: allowed()}) as hooks, local_server() as server:
        await store_service(server, hooks)
        config = {"service": {"namespace": "default", "name": "hook", "path": "/"}, "caBundle": hooks.ca_bundle}
        broken = hook("v.example.com", hooks, "/", rule("configmaps"), clientConfig=config)
        await check_both_policies(server, broken, "x509: certificate is not valid for hook.default.svc")


async def store_service(server: LocalServer, hooks: WebhookServer, *, port: int = 443, ready: bool = True) -> None:
    ports = [{"name": "https", "port": port}]
    await server.post(
        "/api/v1/namespaces/default/services", {"metadata": {"name": "hook"}, "spec": {"ports": ports}}
    )  # fmt: skip
    endpoint = {"addresses": [hooks.host], "conditions": {"ready": ready}}
    piece = {
        "metadata": {"name": "hook-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [endpoint],
        "ports": [{"name": "https", "port": hooks.port, "protocol": "TCP"}],
    }
    await store_trusted(server, "discovery.k8s.io", "v1", "endpointslices", piece)


def through_service(hooks: WebhookServer, **service: Any) -> Obj:
    return {"service": {"namespace": "default", "name": "hook", **service}, "caBundle": hooks.ca_bundle}


async def test_a_hook_behind_a_service_is_reached_at_an_endpoint() -> None:
    async with (
        webhook_server({"/path": lambda review: allowed("asked")}, hosts=["hook.default.svc"]) as hooks,
        local_server() as server,
    ):
        await store_service(server, hooks, port=8443)
        config = through_service(hooks, port=8443, path="/path")
        await configure(
            server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"), clientConfig=config))
        )
        assert "asked" in (await create(server)).headers["warning"]


async def test_a_hook_behind_a_service_with_endpoints_only_is_reached_too() -> None:
    async with (
        webhook_server({"/": lambda review: allowed("asked")}, hosts=["hook.default.svc"]) as hooks,
        local_server() as server,
    ):
        service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}}
        await server.post("/api/v1/namespaces/default/services", service)
        subset = {"addresses": [{"ip": hooks.host}], "ports": [{"port": hooks.port}]}
        endpoints = {"metadata": {"name": "hook", "namespace": "default"}, "subsets": [subset]}
        await store_trusted(server, "", "v1", "endpoints", endpoints)
        config = through_service(hooks)
        await configure(
            server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"), clientConfig=config))
        )
        assert "asked" in (await create(server)).headers["warning"]


async def test_the_service_leads_nowhere() -> None:
    async with webhook_server({}, hosts=["hook.default.svc"]) as hooks, local_server() as server:
        broken = hook("v.example.com", hooks, "/", rule("configmaps"), clientConfig=through_service(hooks))
        await configure(server, validating("v", broken))
        post = 'Post "https://hook.default.svc:443/?timeout=5s": '
        check_closed(await create(server), post + 'service "hook" not found')
        await store_service(server, hooks, ready=False)
        check_closed(await create(server), post + 'no endpoints available for service "hook"')
        other = hook("v.example.com", hooks, "/", rule("configmaps"), clientConfig=through_service(hooks, port=9))
        await server.delete("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/v")
        await configure(server, validating("v", other))
        check_closed(await create(server), 'no service port 9 found for service "hook"')


class Silence:
    """A handler that does not answer before it is told to."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def __call__(self, review: Obj) -> Obj:
        await self.over.wait()
        return allowed()


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_the_hook_takes_too_long(policy: str) -> None:
    clock, silence = FakeClock(), Silence()
    async with webhook_server({"/": silence}) as hooks, local_server(clock=clock) as server:
        slow = hook("v.example.com", hooks, "/", rule("configmaps"), timeoutSeconds=3, failurePolicy=policy)
        await configure(server, validating("v", slow))
        waiting = asyncio.create_task(create(server))
        await eventually(lambda: hooks.reviews)
        await clock.advance(2.9)
        assert not waiting.done()
        await clock.advance(0.2)
        answer = await waiting
        if policy == "Ignore":
            assert answer.status == 201
        else:
            check_closed(answer, f'Post "{slow["clientConfig"]["url"]}?timeout=3s": context deadline exceeded')
        silence.over.set()


def _asked(hooks: WebhookServer, times: int) -> bool:
    return len(hooks.reviews) == times


async def test_all_hooks_of_a_write_share_the_time_of_the_request() -> None:
    clock, silence = FakeClock(), Silence()
    async with webhook_server({"/": silence}) as hooks, local_server(clock=clock) as server:
        slow = [
            hook(f"m{i}.example.com", hooks, "/", rule("configmaps"), timeoutSeconds=25, failurePolicy="Ignore")
            for i in range(3)
        ]
        await configure(server, mutating("m", *slow))
        waiting = asyncio.create_task(create(server))
        for number in (1, 2, 3):
            await eventually(partial(_asked, hooks, number))
            await clock.advance(25.0)
        answer = await waiting
        assert answer.status == 504
        assert answer.json["message"] == "Timeout: request did not complete within requested timeout"
        silence.over.set()


async def test_a_client_that_goes_away_ends_the_call() -> None:
    silence = Silence()
    async with webhook_server({"/": silence}) as hooks, local_server() as server:
        await configure(server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"))))
        waiting = asyncio.create_task(create(server))
        await eventually(lambda: hooks.reviews)
        waiting.cancel()
        await asyncio.wait([waiting])
        calls = [task for task in asyncio.all_tasks() if task.get_name().startswith("webhook/")]
        await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 5)
        silence.over.set()
        assert (await server.call("GET", f"{CONFIGMAPS}/a")).status == 404


def raw(review: Obj, headers: Sequence[tuple[bytes, bytes]] = (), **fields: Any) -> Response:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": allowed(uid=review["uid"])}
    return Response(200, orjson.dumps({**body, **fields}), headers=headers)


UNUSABLE: dict[str, tuple[HookHandler, str]] = {
    "other uid": (
        lambda review: {**allowed(), "uid": "somebody"},
        'received invalid webhook response: expected response.uid="',
    ),
    "no response": (
        lambda review: raw(review, response=None),
        "received invalid webhook response: webhook response was absent",
    ),
    "other kind": (
        lambda review: raw(review, kind="Pod"),
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, Kind=Pod",
    ),
    "other version": (lambda review: raw(review, apiVersion="admission.k8s.io/v1beta1"), "expected webhook response of"),
    "a patch": (lambda review: patched({"op": "test"}), "validating webhook may not return response.patch"),
    "a patch type": (
        lambda review: allowed(patchType="JSONPatch"),
        "validating webhook may not return response.patchType",
    ),
    "no JSON": (lambda review: Response(200, b"fine!"), "failed to call webhook: couldn't get version/kind"),
    "not found": (
        lambda review: Response(404, b"?"),
        "failed to call webhook: the server could not find the requested resource",
    ),
    "broken": (
        lambda review: Response(500, b"it \"broke\""),
        'an error on the server ("it \\"broke\\"") has prevented the request from succeeding',
    ),
    "a redirect": (
        lambda review: Response(302, b"", headers=[(b"Location", b"https://example.com/")]),
        "the server responded with the status code 302 but did not return more details",
    ),
    "a status": (
        lambda review: Response(418, orjson.dumps({"kind": "Status", "message": "short and stout"})),
        "failed to call webhook: short and stout",
    ),
    "too much": (lambda review: Response(200, b" " * (17 * 1024 * 1024)), "the answer is larger than 16777216 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNUSABLE)
async def test_the_answer_cannot_be_used(case: str) -> None:
    handler, why = UNUSABLE[case]

    async with webhook_server({"/": handler}) as hooks, local_server() as server:
        await check_both_policies(server, hook("v.example.com", hooks, "/", rule("configmaps")), why)


BAD_PATCHES: dict[str, tuple[Obj, str]] = {
    "no type": ({"patch": "W10="}, "webhook returned response.patch but not response.patchType"),
    "type only": ({"patchType": "JSONPatch"}, "webhook returned response.patchType but not response.patch"),
    "empty type": ({"patch": "W10=", "patchType": ""}, 'webhook returned invalid response.patchType of ""'),
    "other type": ({"patch": "W10=", "patchType": "MergePatch"}, 'unsupported patch type "MergePatch"'),
    "not base64": ({"patch": "@@@", "patchType": "JSONPatch"}, "received undecodable patch in webhook response"),
    "not JSON": (
        {"patch": base64.b64encode(b"[").decode(), "patchType": "JSONPatch"},
        "received undecodable patch in webhook response",
    ),
    "no list": ({"patch": "e30=", "patchType": "JSONPatch"}, "received undecodable patch in webhook response"),
}


@pytest.mark.parametrize("case", BAD_PATCHES)
async def test_the_patch_cannot_be_used(case: str) -> None:
    reply, why = BAD_PATCHES[case]

    async with webhook_server({"/": lambda review: allowed(**reply)}) as hooks, local_server() as server:
        await configure(server, mutating("m", hook("v.example.com", hooks, "/", rule("configmaps"))))
        check_closed(await create(server), why)


@pytest.mark.parametrize("rudely", [True, False])
async def test_connections_are_kept_and_replaced_when_they_went_stale(rudely: bool) -> None:
    async with webhook_server({"/": lambda review: allowed()}) as hooks, local_server() as server:
        await configure(server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"))))
        for number in range(5):
            (await create(server, f"kept-{number}")).ok()
        assert hooks.connections == 1
        hooks.disconnect(rudely)
        (await create(server, "after")).ok()
        assert hooks.connections == 2
        hooks.handlers["/"] = lambda review: raw(review, headers=[(b"Connection", b"close")])
        (await create(server, "last")).ok()
        (await create(server, "first")).ok()
        assert hooks.connections == 3


async def test_an_old_connection_is_not_trusted() -> None:
    clock = FakeClock()
    async with webhook_server({"/": lambda review: allowed()}) as hooks, local_server(clock=clock) as server:
        await configure(server, validating("v", hook("v.example.com", hooks, "/", rule("configmaps"))))
        (await create(server, "a")).ok()
        await clock.advance(31.0)
        (await create(server, "b")).ok()
        assert hooks.connections == 2
