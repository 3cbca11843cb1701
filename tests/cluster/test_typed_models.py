"""The smallest object of every built-in kind, read by the typed models of the official Python client, which raise an
error for every required field that an answer lacks."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from cluster_objects import collection, example, resources
from kubernetes import client

from shoal.kube.objects import Obj
from shoal.kube.resources import Resource
from shoal.testing.servers import LocalServer, local_server

ApiClient: Any = client.ApiClient


def model_of(resource: Resource) -> str:
    version = resource.version.capitalize()
    domain = resource.group.partition(".")[0].capitalize() if resource.group else "Core"
    return first(f"{version}{resource.kind}", f"{domain}{version}{resource.kind}")


def first(*models: str) -> str:
    return next(name for name in models if hasattr(client, name))


KEPT = {"Event": ("eventTime",)}
"""Fields of a kind that are null in Kubernetes too when they are left out, so that the client cannot read the object."""


def typed(answer: Obj, model: str) -> Any:
    """Raises ValueError for what the model requires and the answer does not have."""
    return ApiClient().deserialize(json.dumps(answer), model, "application/json")


async def smallest(server: LocalServer, resource: Resource) -> Obj:
    """The example without all fields that can be left out, found by trying."""
    obj = example(resource.api_version, resource.kind)

    async def is_valid(tried: Obj) -> bool:
        answer = await server.call("POST", f"{collection(resource)}?dryRun=All", tried)
        return bool(answer.status == 201)

    kept = ("apiVersion", "kind", "metadata", *KEPT.get(resource.kind, ()))

    async def without(part: Any) -> None:
        for name in list(part) if isinstance(part, dict) else range(len(part) - 1, -1, -1):
            if part is obj and name in kept:
                continue
            before = copy.copy(part)
            del part[name]
            if not await is_valid(obj):
                part.clear()
                part.update(before) if isinstance(part, dict) else part.extend(before)
                if isinstance(part[name], dict | list):
                    await without(part[name])

    obj["metadata"] = {each: obj["metadata"][each] for each in ("name", "namespace") if each in obj["metadata"]}
    assert await is_valid(obj)
    await without(obj)
    return obj


@pytest.mark.parametrize("resource", resources(), ids=lambda each: f"{each.api_version}-{each.kind}")
async def test_the_smallest_object_of_a_kind_is_created_read_listed_and_watched_with_its_model(
    resource: Resource,
) -> None:
    model, path = model_of(resource), collection(resource)
    async with local_server() as server:
        obj = await smallest(server, resource)
        made = await server.post(path, obj)
        name = made["metadata"]["name"]
        assert typed(made, model).metadata.name == name
        assert typed(await server.get(f"{path}/{name}"), model).metadata.uid == made["metadata"]["uid"]
        if "list" not in resource.verbs:
            return
        version = resource.version.capitalize()
        listed = typed(await server.get(path), first(f"{model}List", f"{version}{resource.kind}List"))
        assert name in [item.metadata.name for item in listed.items]
        async with server.watch(f"{path}?watch=true&resourceVersion=0&fieldSelector=metadata.name={name}") as events:
            event = await anext(events)
            assert (event["type"], typed(event["object"], model).metadata.name) == ("ADDED", name)


def test_the_models_notice_what_is_missing() -> None:
    """Otherwise the tests above would show nothing."""
    with pytest.raises(ValueError, match="currentNumberScheduled"):
        typed({"metadata": {"name": "a"}, "status": {}}, "V1DaemonSet")
