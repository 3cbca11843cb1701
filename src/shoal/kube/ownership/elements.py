"""Path elements of lists and structs, by type.

This module decides the element of a list item, which values are owned as a whole, and which structs are always present.
A struct that is always present is never created, so no manager owns its ``.``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shoal.kube.ownership.fieldset import SELF, FieldSet, key_element, value_element
from shoal.kube.schema.model import ANY, Form, Type

# Structs that Go holds by value and not by pointer: they are present even in objects that omit them. Only those are
# listed that can be reached from the root through other such structs.
_ALWAYS_PRESENT = {
    "CronJobSpec": {"jobTemplate"},
    "CustomResourceDefinitionSpec": {"names"},
    "CustomResourceDefinitionStatus": {"acceptedNames"},
    "DaemonSetSpec": {"template", "updateStrategy"},
    "DeploymentSpec": {"strategy", "template"},
    "DeviceTaintRuleSpec": {"taint"},
    "Event": {"deprecatedSource", "involvedObject", "regarding", "source"},
    "FlowSchemaSpec": {"priorityLevelConfiguration"},
    "HorizontalPodAutoscalerSpec": {"scaleTargetRef"},
    "IngressStatus": {"loadBalancer"},
    "JobSpec": {"template"},
    "JobTemplateSpec": {"metadata", "spec"},
    "NetworkPolicySpec": {"podSelector"},
    "NodeDaemonEndpoints": {"kubeletEndpoint"},
    "NodeStatus": {"daemonEndpoints", "nodeInfo"},
    "PersistentVolumeClaimSpec": {"resources"},
    "PodGroupSpec": {"schedulingPolicy"},
    "PodTemplate": {"template"},
    "PodTemplateSpec": {"metadata", "spec"},
    "ReplicaSetSpec": {"template"},
    "ResourceClaimSpec": {"devices"},
    "ResourceClaimTemplateSpec": {"metadata", "spec"},
    "ResourceSliceSpec": {"pool"},
    "ServiceStatus": {"loadBalancer"},
    "StatefulSetSpec": {"template", "updateStrategy"},
    "VolumeAttachmentSpec": {"source"},
}
_ROOT_PRESENT = frozenset({"metadata", "spec", "status"})
_BUILT_IN = "io.k8s."

# Never recorded: fields of the server, and fields that identify the object.
UNRECORDED_ROOT = frozenset({"apiVersion", "kind"})
UNRECORDED_METADATA = frozenset(
    {
        "clusterName",
        "creationTimestamp",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


def always_present(type_: Type, *, root: bool) -> frozenset[str]:
    """The fields of a struct that are present even if the object omits them."""
    if not is_built_in(type_):
        return frozenset({"metadata"}) if root else frozenset()
    names = type_.required | _ALWAYS_PRESENT.get(type_.name.rsplit(".", 1)[-1], frozenset())
    if root:
        names |= _ROOT_PRESENT
    return frozenset(name for name in names if name in type_.fields and not is_leaf(type_.fields[name].type))


def is_leaf(type_: Type) -> bool:
    """Whether values of the type are owned as a whole."""
    form = type_.form
    if form is Form.LIST:
        return type_.list_type == "atomic"
    if form is Form.STRUCT or form is Form.MAP:
        return type_.atomic
    return form is not Form.ANY


def field_type(type_: Type, name: str) -> Type:
    """The type of the value at ``name`` in a struct, a map or a value of unknown type."""
    if type_.form is Form.MAP:
        return type_.element
    field = type_.fields.get(name)
    return ANY if field is None else field.type


def is_built_in(type_: Type) -> bool:
    return type_.name.startswith(_BUILT_IN)


def fit_to_schema(fields: FieldSet, type_: Type) -> FieldSet:
    """Adapt a set to the current type: parts that are now owned as a whole may have been owned field by field
    before."""
    if type_.form is Form.ANY or not fields:
        return fields
    fitted: FieldSet = {}
    for element, node in fields.items():
        if node and element != SELF:
            inner = type_.element if type_.form is Form.LIST else field_type(type_, element[2:])
            node = {} if is_leaf(inner) else fit_to_schema(node, inner)
        fitted[element] = node
    return fitted


Identify = Callable[[Any], str]

_MAX_IDENTIFIERS = 10_000
_identifiers: dict[Type, Identify] = {}


def identifier(type_: Type) -> Identify:
    """The function that returns the element of an item of a list that is not atomic."""
    known = _identifiers.get(type_)
    if known is None:
        if len(_identifiers) >= _MAX_IDENTIFIERS:  # custom resources come and go
            _identifiers.clear()
        known = _identifiers[type_] = _make_identifier(type_)
    return known


def _make_identifier(type_: Type) -> Identify:
    if type_.list_type == "set" or not type_.keys:
        return value_element
    defaults = type_.key_defaults
    ordered = tuple((key, defaults.get(key)) for key in sorted(type_.keys))
    if len(ordered) == 1:
        return _single_key(*ordered[0])

    def identify(item: Any) -> str:
        if item.__class__ is not dict:
            return value_element(item)
        keys = {}
        for key, default in ordered:
            value = item.get(key, default)
            if value is not None:
                keys[key] = value
        return key_element(keys)

    return identify


def _single_key(key: str, default: Any) -> Identify:
    before = f'k:{{"{key}":"'

    def identify(item: Any) -> str:
        if item.__class__ is not dict:
            return value_element(item)
        value = item.get(key, default)
        if value.__class__ is str and _is_plain(value):
            return f'{before}{value}"}}'
        return key_element({} if value is None else {key: value})

    return identify


_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@ ")


def _is_plain(text: str) -> bool:
    """Whether the text needs no escapes in JSON."""
    return _PLAIN.issuperset(text)
