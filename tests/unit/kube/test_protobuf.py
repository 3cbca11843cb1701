"""Protobuf bodies decode to the JSON form of the object; broken ones are bad requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest
from shoal.kube.protobuf import MAGIC, decode, encode, encode_message, message_name, messages
from shoal.kube.protobuf.gnostic import encode_openapi_v2
from shoal.kube.protobuf.wire import BYTES, VARINT, delimited, double, read_varint, tag, varint

POD = "api.core.v1.Pod"
CRD_SCHEMA = "apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"


def text(number: int, value: str) -> bytes:
    return delimited(number, value.encode())


def number(field: int, value: int) -> bytes:
    return tag(field, VARINT) + varint(value)


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return MAGIC + delimited(1, text(1, api_version) + text(2, kind)) + delimited(2, raw) + text(3, "") + text(4, "")


def decode_message(name: str, raw: bytes) -> Any:
    """The JSON form of one message, decoded as the object of a body."""
    package, _, kind = name.rpartition(".")
    group, version = package.split(".")[-2:]
    if group == "core":
        api_version = version
    else:
        api_version = f"{group if group in ('apps', 'batch', 'autoscaling') else f'{group}.k8s.io'}/{version}"
    assert message_name(api_version, kind) == name
    decoded = decode(envelope(api_version, kind, raw))
    assert (decoded.pop("apiVersion"), decoded.pop("kind")) == (api_version, kind)
    return decoded


def test_a_deployment_as_go_writes_it_with_every_zero_is_what_json_would_have_been() -> None:
    metadata = (
        text(1, "web")
        + text(2, "")
        + text(3, "")
        + text(4, "")
        + text(5, "")
        + text(6, "")
        + number(7, 0)
        + delimited(8, b"")
    )
    resources = b""
    container = (
        text(1, "web")
        + text(2, "nginx")
        + text(5, "")
        + delimited(8, resources)
        + text(13, "")
        + text(14, "")
        + number(16, 0)
        + number(17, 0)
        + number(18, 0)
        + text(20, "")
    )
    pod_spec = (
        delimited(2, container)
        + text(3, "")
        + text(6, "")
        + text(8, "")
        + text(9, "")
        + text(10, "")
        + number(11, 0)
        + number(12, 0)
        + number(13, 0)
    )
    template = delimited(
        1, text(1, "") + delimited(8, b"") + delimited(11, text(1, "app") + text(2, "web"))
    ) + delimited(2, pod_spec)
    selector = delimited(1, text(1, "app") + text(2, "web"))
    spec = (
        number(1, 0)
        + delimited(2, selector)
        + delimited(3, template)
        + delimited(4, text(1, ""))
        + number(5, 0)
        + number(7, 0)
    )
    status = number(1, 0) + number(2, 0) + number(3, 0)
    body = envelope("apps/v1", "Deployment", delimited(1, metadata) + delimited(2, spec) + delimited(3, status))
    assert decode(body) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 0,  # a pointer: zero was asked for
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "nginx"}]},
            },
        },
    }  # fmt: skip


def test_fields_that_json_always_has_are_kept_when_empty_and_pointers_keep_their_zero() -> None:
    assert decode_message("api.core.v1.Container", text(1, "")) == {"name": ""}
    assert decode_message("api.core.v1.PodSpec", number(37, 0)) == {"hostUsers": False}
    assert decode_message("api.core.v1.PodSpec", number(11, 0)) == {}
    assert decode_message("api.core.v1.EmptyDirVolumeSource", text(1, "")) == {}
    volume = decode_message("api.core.v1.Volume", text(1, "v") + delimited(2, delimited(2, b"")))
    assert volume == {"name": "v", "emptyDir": {}}


ROUND_TRIPS: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p", "creationTimestamp": "2026-01-02T03:04:05Z", "generation": 2, "labels": {"a": "b", "é": ""},
            "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "n", "uid": "u", "controller": True, "blockOwnerDeletion": False}],
            "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:x": {}}}}],
        },
        "spec": {
            "containers": [{
                "name": "c", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                "ports": [{"containerPort": 80}],
                "livenessProbe": {"httpGet": {"port": "web", "path": "/"}, "periodSeconds": 5},
                "readinessProbe": {"tcpSocket": {"port": 8080}},
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
                        {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}],
                "envFrom": [{"configMapRef": {"name": "cm"}}],
            }],
            "ephemeralContainers": [{"name": "e", "targetContainerName": "c"}],
            "volumes": [{"name": "v", "configMap": {"name": "cm", "defaultMode": 0}}, {"name": "w", "emptyDir": {"sizeLimit": "1Gi"}}],
            "securityContext": {"runAsUser": 0, "supplementalGroups": [1, -2, 2**40]},
            "terminationGracePeriodSeconds": 0,
        },
        "status": {"startTime": "1970-01-01T00:00:00Z", "podIPs": [{"ip": "10.0.0.1"}]},
    },
    {"apiVersion": "v1", "kind": "Secret", "data": {"a": "AAH/", "b": ""}, "type": "Opaque"},
    {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "orphanDependents": False, "dryRun": ["All"]},
    {"apiVersion": "apps/v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"},
    {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404, "details": {"name": "x", "causes": [{"field": "f"}]}},
    {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}, "status": {"replicas": 1}},
    {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 5}},
    {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n"}},
    {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["a"], "expirationSeconds": 600}, "status": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}},
    {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "u", "extra": {"k": ["a", "b"], "empty": []}}, "status": {"allowed": False}},
    {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "h", "renewTime": "2026-01-02T03:04:05.000001Z", "leaseDurationSeconds": 15}},
    {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minAvailable": "50%", "maxUnavailable": 0},
     "status": {"disruptedPods": {"p": "2026-01-01T00:00:00Z"}, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
    {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": {
        "group": "x.io", "names": {"plural": "as", "kind": "A"}, "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": True, "$ref": "#/x",
            "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 1.5, "default": {"k": [1, None]}, "enum": [1, "a", None, False]}},
            "additionalProperties": False, "items": {"type": "string"}, "dependencies": {"d": ["x", "y"], "e": {"type": "string"}},
            "not": {"items": [{"type": "string"}, {}], "additionalProperties": {"type": "string"}}}}}]}},
    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "webhooks": [{
        "name": "w", "clientConfig": {"caBundle": "AA=="}, "rules": [{"operations": ["CREATE"], "apiGroups": [""], "resources": ["pods"]}]}]},
]  # fmt: skip


@pytest.mark.parametrize("obj", ROUND_TRIPS, ids=lambda obj: f"{obj['apiVersion']} {obj['kind']}")
def test_kinds_survive_the_round_trip(obj: dict[str, Any]) -> None:
    assert _without_empties(decode(encode(obj))) == _without_empties(obj)


def _without_empties(value: Any) -> Any:
    """Without the empty messages that inlined parts and required structs bring along."""
    if isinstance(value, dict):
        cleaned = {key: _without_empties(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in ({}, [])}
    return [_without_empties(item) for item in value] if isinstance(value, list) else value


def test_kinds_are_found_by_group_and_version() -> None:
    assert message_name("v1", "Pod") == POD
    assert message_name("apps/v1", "Deployment") == "api.apps.v1.Deployment"
    assert message_name("networking.k8s.io/v1", "Ingress") == "api.networking.v1.Ingress"
    assert message_name("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") == "api.flowcontrol.v1.FlowSchema"
    assert message_name("example.com/v1", "DeleteOptions") == "apimachinery.pkg.apis.meta.v1.DeleteOptions"
    assert message_name("example.com/v1", "Pod") is None
    assert message_name("apps.example.com/v1", "Deployment") is None
    assert message_name("", "") is None
    with pytest.raises(ValueError, match="no kind"):
        encode({"apiVersion": "example.com/v1", "kind": "Thing"})


def test_every_message_of_the_table_can_be_read_and_names_only_known_types() -> None:
    table = Path(messages.__file__).with_name("fields.tsv").read_text("utf-8")
    names = {line.partition("\t")[0] for line in table.splitlines()}
    assert POD in names
    for name in names:
        message = messages.message(name)
        assert message.name == name
        assert len({field.number for field in message.fields}) == len(message.fields)
        assert {field.type for field in message.fields} <= names | LEAVES.keys()
    for name in names:
        if name.startswith("api.") and not messages.message(name).is_list:
            assert decode_message(name, b"") == {}


def test_numbers_packed_and_unknown_fields() -> None:
    context = "api.core.v1.PodSecurityContext"
    packed = delimited(4, varint(1) + varint(-2))
    assert decode_message(context, packed + number(4, 7)) == {"supplementalGroups": [1, -2, 7]}
    unknown = text(999, "x") + number(1000, 5) + tag(1001, 1) + double(1.0) + tag(1002, 5) + b"\0\0\0\0"
    assert decode_message(context, unknown + number(2, 5)) == {"runAsUser": 5}
    assert decode_message("api.core.v1.ContainerPort", number(3, -1)) == {"containerPort": -1}
    assert decode_message(CRD_SCHEMA, tag(9, 1) + double(2.0)) == {"maximum": 2}
    window = delimited(3, number(1, 90 * 10**9))
    assert decode_message("metrics.pkg.apis.metrics.v1beta1.NodeMetrics", window) == {"window": "1m30s"}


def test_raw_extensions_hold_json_or_a_whole_object() -> None:
    name = "api.apps.v1.ControllerRevision"
    assert decode_message(name, delimited(2, delimited(1, b'{"a":[1]}'))) == {"data": {"a": [1]}}
    decoded = decode_message(name, delimited(2, delimited(1, envelope("v1", "Secret", text(3, "Opaque")))))
    assert decoded["data"] == {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
    inner = decode(
        MAGIC + delimited(1, text(1, "x.io/v1") + text(2, "T")) + delimited(2, b'{"a":1}') + text(4, "application/json")
    )
    assert inner == {"apiVersion": "x.io/v1", "kind": "T", "a": 1}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "does not begin"), (b"{}", "does not begin"), (MAGIC + b"\x0a\x05a", "unexpected end"),
        (envelope("v1", "Pod", b"\x0a\x7f"), "unexpected end"), (envelope("v1", "Pod", b"\x0a\x80"), "unexpected end"),
        (envelope("v1", "Pod", number(1, 1)), "wrong wire type"), (envelope("v1", "Pod", b"\x07"), "unexpected end|wire type|field number"),
        (envelope("v1", "Pod", delimited(1, b"\x0a\x02\xff\xfe")), "not UTF-8"), (envelope("v1", "Nope", b""), "no kind"),
        (envelope("v1", "Time", b""), "no kind"), (envelope("authentication.k8s.io/v1", "ExtraValue", b""), "no kind"),
        (envelope("v1", "Pod", delimited(1, b"\x0a\x05ab")), "unexpected end"),
        (envelope("v1", "Pod", b"\xff" * 12), "64 bits"),
        (MAGIC + text(3, "gzip"), "content encoding"),
        (envelope("v1", "Pod", delimited(1, delimited(8, number(1, 2**62)))), "not valid protobuf"),
        (envelope("v1", "ResourceQuota", delimited(2, delimited(1, text(1, "cpu") + delimited(2, text(1, "wrong"))))), "quantities must match"),
        (envelope("apps/v1", "ControllerRevision", delimited(2, delimited(1, b"{"))), "not valid JSON"),
    ],
)  # fmt: skip
def test_broken_bodies_are_bad_requests_that_say_why(body: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        decode(body)


def test_nesting_is_limited() -> None:
    raw = b""
    for _ in range(400):
        raw = delimited(28, raw)
    with pytest.raises(BadRequest, match="nested deeper"):
        decode_message(CRD_SCHEMA, raw)
    body = envelope("v1", "Secret", b"")
    for _ in range(300):
        body = envelope("apps/v1", "ControllerRevision", delimited(2, delimited(1, body)))
    with pytest.raises(BadRequest, match="nested deeper"):
        decode(body)


SAMPLES = [encode(obj) for obj in ROUND_TRIPS]


@settings(max_examples=500, deadline=None)
@given(
    st.sampled_from(SAMPLES),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6),
    st.integers(0, 50),
)
def test_damaged_bodies_decode_or_are_bad_requests(body: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    damaged = bytearray(body)
    for position, value in changes:
        damaged[position % len(damaged)] = value
    try:
        decode(bytes(damaged[: len(damaged) - cut]))
    except BadRequest:
        pass


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([POD, CRD_SCHEMA, "api.core.v1.Service", "api.batch.v1.Job"]), st.binary(max_size=60))
def test_any_bytes_decode_or_are_bad_requests(name: str, raw: bytes) -> None:
    try:
        decode_message(name, raw)
    except BadRequest:
        pass


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "string": names,
    "bool": st.just(True),
    "int32": st.integers(-(2**31), 2**31 - 1).filter(bool),
    "int64": st.integers(-(2**63), 2**63 - 1).filter(bool),
    "double": st.floats(-1e6, 1e6).map(lambda value: value + 0.25),
    "bytes": st.just("AAH/"),
    messages.QUANTITY: st.sampled_from(["1", "500m", "1Gi"]),
    messages.TIME: st.sampled_from(["2026-01-02T03:04:05Z", "1969-12-31T23:59:59Z"]),
    messages.MICRO_TIME: st.sampled_from(["2026-01-02T03:04:05.000001Z", "1969-12-31T23:59:59.999999Z"]),
    messages.DURATION: st.sampled_from(["1m0s", "1.5s"]),
    messages.INT_OR_STRING: st.integers(1, 100) | names,
    messages.RAW_EXTENSION: st.just({"a": [1, None, "x"]}),
    messages.FIELDS_V1: st.just({"f:a": {}}),
}
KINDS = ["api.core.v1.Pod", "api.core.v1.Service", "api.core.v1.Node", "api.apps.v1.Deployment", "api.apps.v1.StatefulSet",
         "api.batch.v1.CronJob", "api.networking.v1.Ingress", "api.autoscaling.v2.HorizontalPodAutoscaler", "api.discovery.v1.EndpointSlice",
         "api.storage.v1.StorageClass", "api.resource.v1.ResourceClaim", "api.core.v1.PersistentVolume"]  # fmt: skip


@st.composite
def json_of(draw: st.DrawFn, type_name: str, depth: int = 0) -> Any:
    """A value of a message type that has no zeros in it."""
    if type_name in LEAVES:
        return draw(LEAVES[type_name])
    out: dict[str, Any] = {}
    for field in messages.message(type_name).fields:
        plain = field.type in LEAVES
        if field.inline:
            out.update(draw(json_of(field.type, depth)))
        elif (depth > 3 and not plain) or draw(st.integers(0, 3)):
            continue
        elif field.map:
            out[field.name] = draw(st.dictionaries(names, json_of(field.type, depth + 1), min_size=1, max_size=2))
        elif field.repeated:
            out[field.name] = draw(st.lists(json_of(field.type, depth + 1), min_size=1, max_size=2))
        else:
            out[field.name] = draw(json_of(field.type, depth + 1))
    return out


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(KINDS))
def test_any_object_without_zeros_survives_the_round_trip(data: st.DataObject, kind: str) -> None:
    obj = data.draw(json_of(kind))
    assert _without_empties(decode_message(kind, encode_message(kind, obj))) == _without_empties(obj)


def test_values_that_do_not_fit_their_field_are_value_errors() -> None:
    for obj in (
        {"metadata": "x"},
        {"metadata": {"generation": "1"}},
        {"metadata": {"generation": 2**70}},
        {"metadata": {"labels": {"a": 1}}},
    ):
        with pytest.raises(ValueError):
            encode_message(POD, obj)


def fields_of(data: bytes) -> dict[int, list[Any]]:
    """A message taken apart by number, for looking at what was written."""
    found: dict[int, list[Any]] = {}
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        value: Any
        if key & 7 == 1:
            value, position = data[position : position + 8], position + 8
        else:
            value, position = read_varint(data, position)
        if key & 7 == BYTES:
            length = value
            value, position = data[position : position + length], position + length
        found.setdefault(key >> 3, []).append(value)
    return found


def test_openapi_document_has_gnostics_field_numbers() -> None:
    document = {
        "swagger": "2.0",
        "info": {"title": "T", "version": "v1"},
        "x-top": [1],
        "paths": {
            "/a/{n}": {
                "get": {
                    "operationId": "get", "deprecated": True, "x-kubernetes-action": "list",
                    "parameters": [
                        {"in": "query", "name": "q", "type": "string", "uniqueItems": True},
                        {"in": "body", "name": "body", "required": True, "schema": {"$ref": "#/definitions/A"}},
                        {"in": "path", "name": "n", "required": True, "type": "string"},
                        {"$ref": "#/parameters/p"},
                    ],
                    "responses": {"200": {"description": "OK", "schema": {"type": "string"}}},
                }
            }
        },
        "definitions": {
            "A": {
                "type": "object", "required": ["b"], "additionalProperties": {"type": "string"},
                "properties": {"b": {"type": "array", "items": {"type": "integer", "minimum": 1.5}}},
                "x-kubernetes-group-version-kind": [{"group": "", "kind": "A", "version": "v1"}],
            },
            "B": {"additionalProperties": False},
        },
        "parameters": {"p": {"in": "header", "name": "h", "type": "string"}},
        "security": [{"BearerToken": []}],
        "securityDefinitions": {"BearerToken": {"type": "apiKey", "name": "authorization", "in": "header"}},
    }  # fmt: skip
    top = fields_of(encode_openapi_v2(document))
    assert top[1] == [b"2.0"] and fields_of(top[2][0]) == {1: [b"T"], 2: [b"v1"]}
    assert fields_of(top[16][0]) == {1: [b"x-top"], 2: [text(2, "[1]\n")]}
    path = fields_of(fields_of(top[8][0])[2][0])
    assert path[1] == [b"/a/{n}"]
    operation = fields_of(fields_of(path[2][0])[2][0])
    assert operation[5] == [b"get"] and operation[11] == [1]
    assert fields_of(operation[13][0]) == {1: [b"x-kubernetes-action"], 2: [text(2, '"list"\n')]}
    query, body, in_path, reference = (fields_of(item) for item in operation[8])
    as_query = fields_of(fields_of(fields_of(query[1][0])[2][0])[3][0])
    assert as_query == {2: [b"query"], 4: [b"q"], 6: [b"string"], 20: [1]}
    assert fields_of(fields_of(body[1][0])[1][0]) == {
        2: [b"body"],
        3: [b"body"],
        4: [1],
        5: [text(1, "#/definitions/A")],
    }
    assert fields_of(fields_of(fields_of(in_path[1][0])[2][0])[4][0]) == {
        1: [1],
        2: [b"path"],
        4: [b"n"],
        5: [b"string"],
    }
    assert reference == {2: [text(1, "#/parameters/p")]}
    response = fields_of(fields_of(operation[9][0])[1][0])
    assert response[1] == [b"200"] and response[2] == [
        delimited(1, text(1, "OK") + delimited(2, delimited(1, delimited(22, text(1, "string")))))
    ]
    a, b = (fields_of(item) for item in fields_of(top[9][0])[1])
    schema = fields_of(a[2][0])
    assert a[1] == [b"A"] and schema[19] == [b"b"] and schema[22] == [text(1, "object")]
    assert schema[21] == [delimited(1, delimited(22, text(1, "string")))]
    items = fields_of(fields_of(fields_of(fields_of(schema[25][0])[1][0])[2][0])[23][0])[1][0]
    assert fields_of(items) == {9: [double(1.5)], 22: [text(1, "integer")]}
    assert b[2] == [delimited(21, number(2, 0))]
    assert fields_of(top[12][0]) == {1: [text(1, "BearerToken") + delimited(2, b"")]}
    assert fields_of(fields_of(top[13][0])[1][0])[2] == [
        delimited(2, text(1, "apiKey") + text(2, "authorization") + text(3, "header"))
    ]
    with pytest.raises(ValueError, match="cannot be in"):
        encode_openapi_v2({"parameters": {"p": {"in": "nowhere"}}})
