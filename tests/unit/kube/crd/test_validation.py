"""Invalid definitions are refused, with the field and the message of Kubernetes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from shoal.kube.crd.definition import default_crd, prepare_create, prepare_update
from shoal.kube.crd.validation import validate_crd, warnings
from shoal.kube.objects import Obj

ROOT = "spec.validation.openAPIV3Schema"


def a_version(schema: Obj | None = None, name: str = "v1", **more: Any) -> Obj:
    body = schema if schema is not None else {"type": "object"}
    return {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": body}, **more}


def a_definition(*versions: Obj, group: str = "example.com", **names: Any) -> Obj:
    given = {"plural": "widgets", "kind": "Widget", **names}
    crd: Obj = {
        "metadata": {"name": f"{given['plural']}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": given, "versions": list(versions) or [a_version()]},
    }
    default_crd(crd)
    prepare_create(crd)
    return crd


def texts(crd: Obj, old: Obj | None = None) -> list[str]:
    return [str(error) for error in validate_crd(crd, old)]


def spec_field(**field: Any) -> Obj:
    """A definition with one field ``spec.x``."""
    return a_definition(
        a_version({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": field}}}})
    )


X = f"{ROOT}.properties[spec].properties[x]"


def test_a_small_definition_is_accepted() -> None:
    assert texts(a_definition()) == []
    assert texts(a_definition(a_version(), a_version(name="v2", storage=False))) == []


def _change(path: str, value: Any) -> Callable[[Obj], None]:
    def change(crd: Obj) -> None:
        *above, last = path.split(".")
        place: Any = crd
        for name in above:
            place = place[int(name)] if name.isdigit() else place.setdefault(name, {})
        if value is ...:
            place.pop(last)
        else:
            place[last] = value

    return change


CHANGES: list[tuple[str, Any, str]] = [
    ("metadata.name", "other.example.com", 'metadata.name: Invalid value: "other.example.com": must be spec.names.plural+"."+spec.group'),
    ("spec.group", "", "spec.group: Required value"),
    ("spec.group", "nodots", 'spec.group: Invalid value: "nodots": should be a domain with at least one dot'),
    ("spec.scope", "", "spec.scope: Required value"),
    ("spec.scope", "Galaxy", 'spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'),
    ("spec.names.singular", "", "spec.names.singular: Required value"),
    ("spec.names.listKind", "Widget", 'spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same'),
    ("spec.names.shortNames", ["W"], 'spec.names.shortNames[0]: Invalid value: "W": a DNS-1035 label'),
    ("spec.names.categories", ["-"], 'spec.names.categories[0]: Invalid value: "-": a DNS-1035 label'),
    ("spec.versions.0.name", "V1", 'spec.versions[0].name: Invalid value: "V1": a DNS-1035 label'),
    ("spec.versions.0.storage", False, 'spec.versions: Invalid value: ["v1"]: must have exactly one version marked as storage version'),
    ("spec.versions.0.schema", ..., "spec.versions[0].schema.openAPIV3Schema: Required value"),
    ("spec.versions.0.deprecationWarning", "x", 'spec.versions[0].deprecationWarning: Invalid value: "x": can only be set for deprecated versions'),
    ("spec.versions.0.subresources", {"scale": {"specReplicasPath": "spec.r", "statusReplicasPath": ".status.r"}}, 'spec.subresources.scale.specReplicasPath: Invalid value: "spec.r": must be a simple json path starting with .'),
    ("spec.versions.0.subresources", {"scale": {"specReplicasPath": ".status.r", "statusReplicasPath": ".status.r"}}, 'spec.subresources.scale.specReplicasPath: Invalid value: ".status.r": should be a json path under .spec'),
    ("spec.versions.0.subresources", {"scale": {"specReplicasPath": ".spec.r"}}, "spec.subresources.scale.statusReplicasPath: Required value"),
    ("spec.versions.0.subresources", {"scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r", "labelSelectorPath": ".x"}}, 'spec.subresources.scale.labelSelectorPath: Invalid value: ".x": should be a json path under either .spec or .status'),
    ("spec.versions.0.additionalPrinterColumns", [{"name": "A", "type": "strange", "jsonPath": ".a"}], 'spec.additionalPrinterColumns[0].type: Invalid value: "strange": must be one of boolean,date,integer,number,string'),
    ("spec.versions.0.additionalPrinterColumns", [{"name": "A", "type": "string"}], "spec.additionalPrinterColumns[0].JSONPath: Required value"),
    ("spec.versions.0.additionalPrinterColumns", [{"name": "A", "type": "string", "jsonPath": ".a", "format": "x"}], 'spec.additionalPrinterColumns[0].format: Invalid value: "x": must be one of byte,date,date-time,double,float,int32,int64,password'),
    ("spec.conversion", {"strategy": "Odd"}, 'spec.conversion.strategy: Unsupported value: "Odd": supported values: "None", "Webhook"'),
    ("spec.conversion", {"strategy": "Webhook"}, "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook"),
    ("spec.conversion", {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}}, "spec.conversion.webhookClientConfig: Required value: exactly one of url or service is required"),
    ("spec.conversion", {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://h"}, "conversionReviewVersions": ["v1"]}}, "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"),
    ("spec.conversion", {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://h"}, "conversionReviewVersions": ["v9"]}}, 'spec.conversion.conversionReviewVersions: Invalid value: ["v9"]: must include at least one of v1, v1beta1'),
    ("spec.conversion", {"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}, "spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook"),
    ("spec.preserveUnknownFields", True, "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"),
    ("status.storedVersions", ["v1", "v0"], 'status.storedVersions[1]: Invalid value: "v0": missing from spec.versions; v0 was previously a storage version'),
    ("status.storedVersions", [], "status.storedVersions: Invalid value: []: must have at least one stored version"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "error"), CHANGES)
def test_each_fault_of_a_definition_is_reported(path: str, value: Any, error: str) -> None:
    crd = a_definition()
    _change(path, value)(crd)
    assert any(text.startswith(error) for text in texts(crd)), texts(crd)


FIELDS: list[tuple[Obj, str]] = [
    ({}, f"{X}.type: Required value: must not be empty for specified object fields"),
    ({"type": "thing"}, f'{X}.type: Unsupported value: "thing": supported values: "array", "boolean", "integer", "number", "object", "string"'),
    ({"type": "array"}, f"{X}.items: Required value: must be specified"),
    ({"type": "array", "items": {}}, f"{X}.items.type: Required value: must not be empty for specified array items"),
    ({"type": "array", "items": [{"type": "string"}]}, f"{X}.items: Forbidden: items must be a schema object and not an array"),
    ({"type": "string", "pattern": "("}, f'{X}.pattern: Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing regexp: missing closing ): `(`'),
    ({"type": "string", "pattern": "(?=a)"}, f'{X}.pattern: Invalid value: "(?=a)": must be a valid regular expression, but isn\'t: error parsing regexp: invalid or unsupported Perl syntax: `(?=`'),
    ({"type": "string", "pattern": "(a)\\1"}, f'{X}.pattern: Invalid value: "(a)\\\\1": must be a valid regular expression'),
    ({"type": "string", "$ref": "#/x"}, f"{X}.$ref: Forbidden: $ref is not supported"),
    ({"type": "object", "patternProperties": {"a": {"type": "string"}}}, f"{X}.patternProperties: Forbidden: patternProperties is not supported"),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, f"{X}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}, f"{X}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"),
    ({"type": "object", "x-kubernetes-preserve-unknown-fields": False}, f"{X}.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"),
    ({"type": "string", "anyOf": [{"type": "string"}]}, f"{X}.anyOf[0].type: Forbidden: must be empty to be structural"),
    ({"type": "string", "not": {"default": "a"}}, f"{X}.not.default: Forbidden: must be undefined to be structural"),
    ({"type": "string", "x-kubernetes-embedded-resource": True}, f'{X}.type: Invalid value: "string": must be object if x-kubernetes-embedded-resource is true'),
    ({"type": "object", "x-kubernetes-embedded-resource": True}, f"{X}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"),
    ({"x-kubernetes-int-or-string": True, "x-kubernetes-preserve-unknown-fields": True}, f"{X}.x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true"),
    ({"type": "string", "x-kubernetes-list-type": "set"}, f'{X}.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified'),
    ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "odd"}, f'{X}.x-kubernetes-list-type: Unsupported value: "odd": supported values: "atomic", "map", "set"'),
    ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}, f"{X}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"),
    ({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}, f"{X}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"),
    ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}, f'{X}.x-kubernetes-list-map-keys: Invalid value: ["k"]: entries must all be names of item properties'),
    ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-map-keys": ["k"]}, f"{X}.x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty"),
    ({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}, f"{X}.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set"),
    ({"type": "array", "items": {"type": "string", "nullable": True}, "x-kubernetes-list-type": "set"}, f"{X}.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set"),
    ({"type": "string", "x-kubernetes-map-type": "atomic"}, f'{X}.type: Invalid value: "string": must be object if x-kubernetes-map-type is specified'),
    ({"type": "integer", "default": "a"}, f'{X}.default: Invalid value: "string":  in body must be of type integer: "string"'),
    ({"type": "object", "default": {"a": 1}}, f'{X}.default: Invalid value: {{"a":1}}: must not have unknown fields'),
    ({"type": "integer", "default": 5, "x-kubernetes-validations": [{"rule": "self < 3"}]}, f"{X}.default: Invalid value: 5: failed rule: self < 3"),
    ({"type": "string", "x-kubernetes-validations": [{"rule": " "}]}, f"{X}.x-kubernetes-validations[0].rule: Required value: rule is not specified"),
    ({"type": "string", "x-kubernetes-validations": [{"rule": "true", "message": "a\nb"}]}, f'{X}.x-kubernetes-validations[0].message: Invalid value: "a\\nb": must not contain line breaks'),
    ({"type": "string", "x-kubernetes-validations": [{"rule": "true ||\ntrue"}]}, f"{X}.x-kubernetes-validations[0].message: Required value: message must be specified if rule contains line breaks"),
    ({"type": "string", "x-kubernetes-validations": [{"rule": "true", "reason": "Odd"}]}, f'{X}.x-kubernetes-validations[0].reason: Unsupported value: "Odd"'),
    ({"type": "object", "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".a"}]}, f'{X}.x-kubernetes-validations[0].fieldPath: Invalid value: ".a": must be a valid path'),
    ({"type": "string", "x-kubernetes-validations": [{"rule": "self.foo"}]}, f"{X}.x-kubernetes-validations[0].rule: Invalid value: {{\"rule\":\"self.foo\"}}: compilation failed: ERROR: <input>:1:5: type 'string' does not support field selection\n | self.foo\n | ....^"),
    ({"type": "string", "x-kubernetes-validations": [{"rule": "self"}]}, f'{X}.x-kubernetes-validations[0].rule: Invalid value: {{"rule":"self"}}: cel expression must evaluate to a bool'),
    ({"type": "string", "x-kubernetes-validations": [{"rule": "true", "messageExpression": "1"}]}, f'{X}.x-kubernetes-validations[0].messageExpression: Invalid value: {{"rule":"true","messageExpression":"1"}}: messageExpression must evaluate to a string'),
    ({"type": "string", "x-kubernetes-validations": [{"rule": "true", "optionalOldSelf": True}]}, f"{X}.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule"),
    ({"type": "array", "items": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}, "maxItems": 5}, f'{X}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf cannot be used on the uncorrelatable portion of the schema within {X}'),
]  # fmt: skip


@pytest.mark.parametrize(("field", "error"), FIELDS)
def test_each_fault_of_a_schema_is_reported(field: Obj, error: str) -> None:
    found = texts(spec_field(**field))
    assert any(text.startswith(error) for text in found), found


def test_junctors_may_only_use_fields_that_exist() -> None:
    crd = a_definition(a_version({"type": "object", "allOf": [{"properties": {"a": {"minLength": 1}}}]}))
    assert texts(crd) == [
        f"{ROOT}.properties[a]: Required value: because it is defined in {ROOT}.allOf[0].properties[a]"
    ]


def test_rules_that_could_cost_too_much_are_refused() -> None:
    ints = {"type": "array", "items": {"type": "integer"}}
    costly = texts(
        spec_field(**ints, **{"x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a != b || a == b))"}]})
    )
    assert costly[0] == (
        f"{X}.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x "
        "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
    assert costly[-1].startswith(
        f"{ROOT}: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget"
    )
    assert (
        f"{X}.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        in costly
    )
    bounded = {**ints, "maxItems": 20}
    assert (
        texts(
            spec_field(
                **bounded, **{"x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a != b || a == b))"}]}
            )
        )
        == []
    )


def test_how_often_a_rule_runs_counts() -> None:
    rule = {
        "x-kubernetes-validations": [{"rule": "self.contains('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')"}]
    }
    item = {"type": "string", "maxLength": 1000, **rule}
    assert texts(spec_field(type="array", maxItems=100, items=item)) == []
    (first, *_) = texts(spec_field(type="array", items=item))
    assert "estimated rule cost exceeds budget by factor of" in first


def test_what_versions_share_is_named_at_the_top_and_the_rest_by_version() -> None:
    bad, worse = {"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}
    shared = texts(a_definition(a_version(bad), a_version(copy.deepcopy(bad), name="v2")))
    assert shared == [
        "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"
    ]
    apart = texts(a_definition(a_version(bad), a_version(worse, name="v2")))
    assert [text.split(":")[0] for text in apart] == [
        "spec.versions[0].schema.openAPIV3Schema.properties[a].type",
        "spec.versions[1].schema.openAPIV3Schema.properties[b].type",
    ]


def test_the_root_is_special() -> None:
    assert texts(a_definition(a_version({"type": "string"}))) == [
        f'{ROOT}.type: Invalid value: "string": must be object at the root'
    ]
    assert texts(a_definition(a_version({"type": "object", "nullable": True}))) == [
        f"{ROOT}.nullable: Forbidden: nullable cannot be true at the root"
    ]
    assert texts(a_definition(a_version({"type": "object", "additionalProperties": {"type": "string"}}))) == [
        f"{ROOT}.additionalProperties: Forbidden: must not be used at the root"
    ]
    meta = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}},
    }
    assert texts(a_definition(a_version(meta))) == [
        f"{ROOT}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified"
    ]
    named = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}},
    }
    assert texts(a_definition(a_version(named))) == []
    kind = {"type": "object", "properties": {"kind": {"type": "string", "default": "a"}}}
    assert f"{ROOT}.properties[kind].default: Forbidden: must not be set in top-level kind" in texts(
        a_definition(a_version(kind))
    )
    status = a_version({"type": "object", "anyOf": [{"required": ["spec"]}]}, subresources={"status": {}})
    assert (
        "fields are allowed at the root of the schema if the status subresource is enabled"
        in texts(a_definition(status))[0]
    )


def test_selectable_fields_are_few_plain_and_different() -> None:
    fields = {f"f{i}": {"type": "string"} for i in range(9)}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {**fields, "o": {"type": "object"}}}},
    }

    def chosen(*paths: str) -> list[str]:
        return texts(a_definition(a_version(schema, selectableFields=[{"jsonPath": path} for path in paths])))

    assert chosen(".spec.f0", ".spec.f1") == []
    assert chosen(".spec.f0", ".spec.f0") == ['spec.selectableFields[1].jsonPath: Duplicate value: ".spec.f0"']
    assert chosen(".spec.none") == [
        'spec.selectableFields[0].jsonPath: Invalid value: ".spec.none": is an invalid path: does not refer to a valid field'
    ]
    assert chosen(".spec['f0']") == [
        "spec.selectableFields[0].jsonPath: Invalid value: \".spec['f0']\": is an invalid path: array notation is not allowed"
    ]
    assert "must point to a field of type string, boolean or integer" in chosen(".spec.o")[0]
    assert chosen(*(f".spec.f{i}" for i in range(9))) == [
        "spec.selectableFields: Too many: 9: must have at most 8 items"
    ]


def test_protected_groups_need_approval() -> None:
    crd = a_definition(group="x.k8s.io")
    place = "metadata.annotations[api-approved.kubernetes.io]"
    assert texts(crd) == [
        f'{place}: Required value: protected groups must have approval annotation "api-approved.kubernetes.io", '
        "see https://github.com/kubernetes/enhancements/pull/1111"
    ]
    for value, count in (
        ("https://github.com/kubernetes/kubernetes/pull/1", 0),
        ("unapproved, testing", 0),
        ("yes", 1),
    ):
        crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": value}
        assert len(texts(crd)) == count


def test_an_update_may_not_move_a_definition_elsewhere() -> None:
    old = a_definition()
    old["status"]["conditions"] = [{"type": "Established", "status": "True"}]
    new = copy.deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["spec"]["names"] |= {"plural": "gadgets", "kind": "Gadget"}
    assert texts(new, old) == [
        'spec.scope: Invalid value: "Cluster": field is immutable',
        'spec.names.kind: Invalid value: "Gadget": field is immutable',
        'spec.names.plural: Invalid value: "gadgets": field is immutable',
    ]
    old["status"]["conditions"] = []
    assert len(texts(new, old)) == 1, "before it is established only the plural is fixed"


def test_a_stored_version_cannot_be_dropped() -> None:
    old = a_definition(a_version(), a_version(name="v2", storage=False))
    new = copy.deepcopy(old)
    new["spec"]["versions"][0]["storage"], new["spec"]["versions"][1]["storage"] = False, True
    prepare_update(new, old)
    assert new["status"]["storedVersions"] == ["v1", "v2"]
    assert texts(new, old) == []
    del new["spec"]["versions"][0]
    assert texts(new, old)[0].startswith('status.storedVersions[0]: Invalid value: "v1": missing from spec.versions')


def test_schemas_that_did_not_change_are_not_checked_again() -> None:
    old = spec_field(type="thing")
    new = copy.deepcopy(old)
    new["spec"]["names"]["shortNames"] = ["w"]
    assert texts(old) != []
    assert texts(new, old) == []


def test_defaults_and_storage_are_filled_in() -> None:
    crd = a_definition()
    assert crd["spec"]["names"] == {
        "plural": "widgets",
        "kind": "Widget",
        "singular": "widget",
        "listKind": "WidgetList",
    }
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["status"]["storedVersions"] == ["v1"]
    hook = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "s", "namespace": "n"}}}}
    crd["spec"]["conversion"] = hook
    default_crd(crd)
    assert hook["webhook"]["clientConfig"]["service"]["port"] == 443  # type: ignore[index]


def test_unrecognized_formats_cause_a_warning() -> None:
    assert warnings(spec_field(type="string", format="shiny")) == ['unrecognized format "shiny"']
    assert warnings(spec_field(type="string", format="date-time")) == []
