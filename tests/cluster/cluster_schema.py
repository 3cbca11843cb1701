"""Requests made from the published OpenAPI documents, and what must hold for every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import requests
import schemathesis
from cluster_objects import collection, example, resources
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok

from shoal.apiserver.inprocess import InProcessStream
from shoal.testing.servers import LocalServer, local_server

DOCUMENTS = (
    "api/v1", "apis/apps/v1", "apis/batch/v1", "apis/networking.k8s.io/v1", "apis/rbac.authorization.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1", "apis/autoscaling/v2", "apis/autoscaling/v1", "apis/policy/v1",
    "apis/coordination.k8s.io/v1", "apis/events.k8s.io/v1", "apis/discovery.k8s.io/v1", "apis/storage.k8s.io/v1",
    "apis/authorization.k8s.io/v1", "apis/authentication.k8s.io/v1", "apis/certificates.k8s.io/v1",
    "apis/admissionregistration.k8s.io/v1", "apis/resource.k8s.io/v1", "apis/scheduling.k8s.io/v1",
    "apis/flowcontrol.apiserver.k8s.io/v1", "apis/node.k8s.io/v1", "apis/apiregistration.k8s.io/v1",
)  # fmt: skip
LONGEST_WAIT = 504  # what the server answers when a revision does not come: described, and no fault of its own


async def send(server: LocalServer, case: Any, name: str) -> None:
    """One generated request, aimed at objects that exist, and what must hold for its answer."""
    for key, value in {"namespace": "default", "name": name}.items():
        if key in case.path_parameters:
            case.path_parameters[key] = value
    if isinstance(case.body, dict) and case.method == "POST":
        case.body["metadata"] = {**_metadata(case.body), "name": name}
    kwargs = case.as_transport_kwargs(base_url="http://server")
    known = ("method", "url", "params", "json", "data", "headers")
    request = requests.Request(**{key: kwargs[key] for key in known if key in kwargs}).prepare()
    body = request.body or b""
    headers = {
        key: str(value) for key, value in request.headers.items() if key.lower() not in ("authorization", "accept")
    }
    target = (request.url or "").removeprefix("http://server")
    assert isinstance(body, (str, bytes))
    data = body.encode() if isinstance(body, str) else body
    reply = await server.transport.stream(request.method or "GET", target, headers=headers, body=data)
    if isinstance(reply, InProcessStream):
        await reply.close()
        return
    text = b"".join([chunk async for chunk in reply.chunks()])
    said = (request.method, target, data[:1000], reply.status, text[:500])
    no_webhook = reply.status == 500 and b"failed calling webhook" in text  # one that a request has configured
    no_endpoint = reply.status == 503 and "/proxy" in target  # a proxy to what does not run
    assert reply.status < 500 or reply.status == LONGEST_WAIT or no_webhook or no_endpoint, said
    if reply.status >= 400:
        assert reply.headers["content-type"] == "application/json", said
        status = orjson.loads(text)
        assert status["kind"] == "Status" and status["code"] == reply.status and status["message"], said


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    found = body.get("metadata")
    return found if isinstance(found, dict) else {}


async def names_of(server: LocalServer) -> dict[str, str]:
    """A name that exists, by the plural of its kind; the objects are made here."""
    names = {}
    for resource in resources():
        obj = example(resource.api_version, resource.kind)
        for hook in obj.get("webhooks", ()):  # nothing answers there: it must not stop all other requests
            hook["rules"] = [{**rule, "apiGroups": ["nowhere.example"]} for rule in hook["rules"]]
        await server.call("POST", collection(resource), obj)
        names[resource.plural] = obj["metadata"]["name"]
    return names


def fuzz(operation: Any, examples: int, send_case: Callable[[Any], None]) -> None:
    @settings(
        max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None,
        derandomize=True, database=None,
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        send_case(case)

    check()


def runner_send(runner: asyncio.Runner, server: LocalServer, name: str, case: Any) -> None:
    runner.run(send(server, case, name))


def check_document(document: str, *, examples: int, every: int) -> None:
    """``examples`` requests for one operation of so many, against a server with an object of every kind."""
    with asyncio.Runner() as runner:
        context = local_server()
        server = runner.run(context.__aenter__())
        try:
            names = runner.run(names_of(server))
            schema = schemathesis.openapi.from_dict(runner.run(server.get(f"/openapi/v3/{document}")))
            operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
            assert operations
            for operation in operations[::every]:
                name = next(
                    (names[s] for s in operation.path.split("/") if s in names and s != "namespaces"), "default"
                )
                fuzz(operation, examples, partial(runner_send, runner, server, name))
            assert runner.run(server.call("GET", "/readyz")).status == 200
        finally:
            runner.run(context.__aexit__(None, None, None))
