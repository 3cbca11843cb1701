"""Whatever bytes come in: never a 500, never the end of the process, and nothing changes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.testing.servers import PATCHES, LocalServer, local_server

PATHS = (
    "/api/v1/namespaces/default/pods",
    "/api/v1/namespaces/default/services",
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/secrets",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
)
NAMES = (
    "metadata", "name", "labels", "annotations", "spec", "status", "containers", "ports", "template", "selector",
    "matchLabels", "data", "rules", "ownerReferences", "finalizers", "type", "image", "env", "value", "replicas",
    "managedFields", "generateName", "resourceVersion", "stringData", "volumes", "clusterIP", "port", "group",
    "names", "versions", "schema", "openAPIV3Schema", "properties", "conditions", "metrics", "kind", "apiVersion",
)  # fmt: skip

scalars = st.none() | st.booleans() | st.integers(-(2**66), 2**66) | st.floats(allow_nan=False) | st.text(max_size=12)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=6), inner, max_size=6),
    max_leaves=25,
)  # fmt: skip
objects = st.fixed_dictionaries(
    {"metadata": st.fixed_dictionaries({"name": st.just("x") | scalars}) | json_values},
    optional=dict.fromkeys(("spec", "data", "rules", "status", "template", "metrics", "stringData"), json_values),
)
bodies = (
    objects.map(lambda v: json.dumps(v).encode())
    | json_values.map(lambda v: json.dumps(v).encode())
    | st.binary(max_size=200)
)
queries = st.sampled_from(
    ("", "?dryRun=All", "?fieldValidation=Strict", "?limit=-1", "?limit=x", "?continue=abc", "?resourceVersion=abc",
     "?labelSelector=%3D%3D", "?fieldSelector=a%3Db", "?watch=1&resourceVersion=x", "?resourceVersionMatch=Exact",
     "?fieldManager=m&force=true", "?gracePeriodSeconds=x", "?propagationPolicy=Maybe", "?labelSelector=a+in+(b,c)")
)  # fmt: skip
content_types = st.sampled_from(
    ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", "", *PATCHES.values())
)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(("POST", "PUT", "PATCH", "DELETE", "GET")), st.sampled_from(PATHS),
    st.sampled_from(("", "/x", "/x/status", "/x/scale", "/x/nothing", "/..", "/%00")), queries, content_types, bodies), max_size=20))  # fmt: skip
async def test_no_request_gives_a_500(requests: list[tuple[str, str, str, str, str, bytes]]) -> None:
    async with local_server() as server:
        for method, path, rest, query, content_type, body in requests:
            target = path + rest + query
            if "watch" in query and method == "GET":
                reply = await server.transport.stream(method, target)
                assert reply.status < 500, target
                await reply.close()
                continue
            answer = await server.call(method, target, body, {"content-type": content_type})
            assert answer.status < 500, (method, target, content_type, body, answer.body)
            if answer.status >= 400:
                assert answer.json["kind"] == "Status" and answer.json["message"], answer.body
        await _still_works(server)


async def _still_works(server: LocalServer) -> None:
    made: Any = await server.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "after-all"}})
    assert made["metadata"]["uid"]
