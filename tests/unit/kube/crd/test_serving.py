"""The resources, rules, columns, selectors and scale of each served version of a definition."""

from __future__ import annotations

import copy
from typing import Any

from shoal.kube.crd.conditions import accept_names, is_established, settle, terminating
from shoal.kube.crd.definition import default_crd, prepare_create, resources_of, storage_version, version_order
from shoal.kube.crd.openapi import openapi_schema
from shoal.kube.crd.serving import finalizer_warnings, rules_of, serve
from shoal.kube.objects import Obj
from shoal.kube.openapi.operations import schema_name

SPEC = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer", "default": 1},
        "color": {"type": "string"},
        "on": {"type": "boolean"},
        "either": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
    },
    "required": ["maybe"],
}
SCHEMA: Obj = {"type": "object", "properties": {"spec": SPEC, "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}  # fmt: skip


def a_version(name: str, **more: Any) -> Obj:
    return {"name": name, "served": True, "storage": False, "schema": {"openAPIV3Schema": SCHEMA}, **more}


def a_definition(plural: str = "widgets", kind: str = "Widget", **names: Any) -> Obj:
    subresources = {
        "status": {},
        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"},
    }  # fmt: skip
    versions = [
        a_version("v1beta1", deprecated=True),
        a_version("v1", storage=True, subresources=subresources, selectableFields=[{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.on"}]),
        a_version("v1alpha1", served=False),
        a_version("v2"),
    ]  # fmt: skip
    crd: Obj = {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind, **names}, "versions": versions},
    }  # fmt: skip
    default_crd(crd)
    prepare_create(crd)
    return crd


def test_served_versions_become_resources_the_preferred_first() -> None:
    made = resources_of(a_definition(shortNames=["wd"], categories=["all"]))
    assert [(each.version, each.preferred) for each in made] == [("v2", True), ("v1", False), ("v1beta1", False)]
    first = made[1]
    assert (first.storage_key, first.custom, first.generation, first.blind_update, first.status) == (
        "widgets.example.com", True, True, False, True,
    )  # fmt: skip
    assert [(sub.name, sub.kind, sub.group) for sub in first.subresources] == [
        ("status", "Widget", ""),
        ("scale", "Scale", "autoscaling"),
    ]
    assert (first.short_names, first.categories, made[0].status) == (("wd",), ("all",), False)
    assert storage_version(a_definition()) == "v1"


def test_versions_are_ordered_as_clients_prefer_them() -> None:
    names = ["foo1", "v1alpha1", "v10", "v2beta1", "v2", "v1", "v1beta2", "v11beta2", "bar"]
    assert sorted(names, key=version_order) == [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v2beta1",
        "v1beta2",
        "v1alpha1",
        "bar",
        "foo1",
    ]


def test_a_served_version_has_all_a_server_needs() -> None:
    by_version = {each.resource.version: each for each in serve(a_definition())}
    served = by_version["v1"]
    obj = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": {"color": "red", "on": True, "maybe": ""},
    }
    served.rules.default(obj)
    assert obj["spec"]["replicas"] == 1  # type: ignore[index]
    assert served.rules.validate_create(obj) == []
    assert {name: pick(obj) for name, pick in served.rules.selectable.items()} == {
        "spec.color": "red",
        "spec.on": "true",
    }
    assert served.rules.selectable["spec.color"]({}) == ""
    assert [column["name"] for column in served.columns] == ["Age"]
    assert by_version["v1beta1"].deprecation == "example.com/v1beta1 Widget is deprecated"
    assert served.deprecation == ""
    assert by_version["v2"].convert(obj)["apiVersion"] == "example.com/v2"
    assert served.convert(obj) is obj


def test_objects_must_be_of_the_kind() -> None:
    rules = rules_of(a_definition(), "v1")
    texts = [str(error) for error in rules.validate_create({"apiVersion": "example.com/v2", "kind": "Gadget"})]
    assert texts == [
        'kind: Invalid value: "Gadget": must be Widget',
        'apiVersion: Invalid value: "example.com/v2": must be example.com/v1',
    ]


def test_scale_reads_and_writes_the_paths_of_the_definition() -> None:
    served = next(each for each in serve(a_definition()) if each.resource.version == "v1")
    scale = served.scale
    assert scale is not None
    obj: Obj = {
        "metadata": {"name": "w", "namespace": "n", "uid": "u", "labels": {}},
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": "a=b"},
    }
    assert scale.scale_of(obj) == {
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w", "namespace": "n", "uid": "u"},
        "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"},
    }  # fmt: skip
    assert scale.scale_of({"spec": {}}) is None
    empty: Obj = {}
    scale.set_replicas(empty, 5)
    assert empty == {"spec": {"replicas": 5}}
    assert [str(error) for error in scale.errors({"spec": {"replicas": -1}, "status": {"selector": 5}})] == [
        ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        '.status.selector: Invalid value: "": .status.selector accessor error: 5 is of the type int64, expected string',
    ]


def test_names_in_use_are_not_given_twice() -> None:
    first = a_definition(shortNames=["w"])
    first["status"] = settle(first, [], 0.0)
    second = a_definition("wads", "Wad", shortNames=["w"], singular="widget")
    names, condition = accept_names(second, [first])
    assert condition["status"] == "False"
    assert (condition["reason"], condition["message"]) == ("ShortNamesConflict", '"w" is already in use')
    assert names["plural"] == "wads" and "shortNames" not in names and "singular" not in names
    other_group = copy.deepcopy(second)
    other_group["spec"]["group"] = "other.com"
    assert accept_names(other_group, [first])[1]["status"] == "True"


def test_settling_establishes_once_and_then_changes_nothing() -> None:
    crd = a_definition()
    status = settle(crd, [], 100.0)
    assert status is not None
    crd["status"] = status
    assert is_established(crd)
    assert status["acceptedNames"]["listKind"] == "WidgetList"
    assert settle(crd, [], 200.0) is None
    crd["spec"]["names"] = {**crd["spec"]["names"], "shortNames": ["w"]}
    again = settle(crd, [], 200.0)
    assert again is not None and again["acceptedNames"]["shortNames"] == ["w"]
    assert all(each["lastTransitionTime"] == "1970-01-01T00:01:40Z" for each in again["conditions"])


def test_a_definition_with_conflicts_is_not_established() -> None:
    first = a_definition()
    first["status"] = settle(first, [], 0.0)
    second = a_definition("wads", "Widget")
    status = settle(second, [first], 0.0)
    assert status is not None
    conditions = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    assert conditions == {"NamesAccepted": ("False", "ListKindConflict"), "Established": ("False", "NotAccepted")}


def test_schema_and_approval_have_conditions() -> None:
    crd = a_definition()
    crd["spec"]["group"] = "x.k8s.io"
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}
    status = settle(crd, [], 0.0)
    assert status is not None
    found = {each["type"]: each for each in status["conditions"]}
    assert found["KubernetesAPIApprovalPolicyConformant"]["reason"] == "MissingAnnotation"
    assert found["NonStructuralSchema"]["message"] == (
        "spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"
    )


def test_a_definition_that_is_deleted_has_the_condition_terminating() -> None:
    status = terminating(a_definition(), 0.0)
    assert status["conditions"][-1]["reason"] == "InstanceDeletionInProgress"
    assert terminating({"status": status}, 1.0, done=True)["conditions"][-1]["status"] == "False"


def test_the_published_schema_has_what_every_kind_has() -> None:
    made = openapi_schema(a_definition(), "v1")
    assert made["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Widget"}]
    assert set(made["properties"]) == {"apiVersion", "kind", "metadata", "spec", "status"}
    assert made["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    assert made["properties"]["spec"]["properties"]["either"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert made["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.color"}, {"fieldPath": "spec.on"}]
    assert schema_name("example.com", "v1", "Widget", custom=True) == "com.example.v1.Widget"


def test_version_two_of_openapi_gets_only_supported_keywords() -> None:
    made = openapi_schema(a_definition(), "v1", v2=True)
    spec = made["properties"]["spec"]
    assert made["properties"]["metadata"]["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert "anyOf" not in spec["properties"]["either"]
    assert spec["properties"]["maybe"] == {}
    assert "required" not in spec
    assert SPEC["required"] == ["maybe"], "the definition itself is left alone"


def test_careless_finalizers_are_warned_of() -> None:
    warned = finalizer_warnings({"metadata": {"finalizers": ["a.b/c", "orphan", "foo", "foo.bar"]}})
    assert warned == [
        'metadata.finalizers: "foo": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers',
        'metadata.finalizers: "foo.bar": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers',
    ]
