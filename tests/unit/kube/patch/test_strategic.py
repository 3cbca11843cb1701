"""Strategic merge patch on real kinds: merge keys, directives and order."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ApiError, BadRequest, Invalid
from shoal.kube.patch import strategic
from shoal.kube.schema import type_of_kind

POD = type_of_kind("", "v1", "Pod")
DEPLOYMENT = type_of_kind("apps", "v1", "Deployment")
SERVICE = type_of_kind("", "v1", "Service")
CONFIG_MAP = type_of_kind("", "v1", "ConfigMap")
NODE = type_of_kind("", "v1", "Node")
ROLE = type_of_kind("rbac.authorization.k8s.io", "v1", "Role")
PDB = type_of_kind("policy", "v1", "PodDisruptionBudget")


def apply(type_, doc, patch):
    return strategic.apply(copy.deepcopy(doc), copy.deepcopy(patch), type_)


def spec(**fields):
    return {"spec": fields}


def meta(**fields):
    return {"metadata": fields}


def named(*names, **fields):
    return [{"name": name, **fields} for name in names]


A = {"name": "a", "image": "1"}
B = {"name": "b", "image": "2"}
C = {"name": "c", "image": "3"}

CASES = {
    # objects
    "a scalar is replaced": (POD, spec(nodeName="x"), spec(nodeName="y"), spec(nodeName="y")),
    "a field is added": (POD, spec(nodeName="x"), spec(hostname="h"), spec(nodeName="x", hostname="h")),
    "null removes a field": (POD, spec(nodeName="x", hostname="h"), spec(nodeName=None), spec(hostname="h")),
    "null for nothing is nothing": (POD, spec(hostname="h"), spec(nodeName=None), spec(hostname="h")),
    "null removes a whole object": (POD, {"spec": {}, "metadata": {"name": "x"}}, {"spec": None}, meta(name="x")),
    "objects merge": (
        POD,
        meta(name="x", labels={"a": "1"}),
        meta(labels={"b": "2"}),
        meta(name="x", labels={"a": "1", "b": "2"}),
    ),
    "nulls in a new object are dropped": (POD, {}, meta(labels={"a": None, "b": "1"}), meta(labels={"b": "1"})),
    "maps merge by key": (CONFIG_MAP, {"data": {"a": "1"}}, {"data": {"b": "2"}}, {"data": {"a": "1", "b": "2"}}),
    "map keys are removed by null": (
        CONFIG_MAP,
        {"data": {"a": "1", "b": "2"}},
        {"data": {"a": None}},
        {"data": {"b": "2"}},
    ),
    "another JSON type replaces": (
        SERVICE,
        spec(ports=[{"port": 1, "targetPort": 8}]),
        spec(ports=[{"port": 1, "targetPort": "http"}]),
        spec(ports=[{"port": 1, "targetPort": "http"}]),
    ),
    "unknown fields merge like a merge patch": (POD, {"x": {"a": 1}}, {"x": {"b": 2}}, {"x": {"a": 1, "b": 2}}),
    "unknown lists are replaced": (POD, {"x": [1]}, {"x": [2]}, {"x": [2]}),
    "the empty patch changes nothing": (POD, spec(nodeName="x"), {}, spec(nodeName="x")),
    # $patch in objects
    "$patch replace keeps the patch alone": (
        POD,
        meta(labels={"a": "1"}),
        meta(labels={"$patch": "replace", "b": "2"}),
        meta(labels={"b": "2"}),
    ),
    "$patch delete empties an object": (
        POD,
        meta(labels={"a": "1"}),
        meta(labels={"$patch": "delete"}),
        meta(labels={}),
    ),
    "$patch on an absent object leaves it absent": (
        POD,
        meta(name="x"),
        meta(labels={"$patch": "delete"}),
        meta(name="x"),
    ),
    "$patch replace at the root": (
        POD,
        spec(nodeName="x"),
        {"$patch": "replace", "spec": {"hostname": "h"}},
        spec(hostname="h"),
    ),
    "$patch delete at the root": (POD, spec(nodeName="x"), {"$patch": "delete"}, {}),
    # lists of objects with a merge key
    "an item merges by its name": (
        POD,
        spec(containers=[A, B]),
        spec(containers=[{"name": "a", "image": "9"}]),
        spec(containers=[{"name": "a", "image": "9"}, B]),
    ),
    "an item's other fields stay": (
        POD,
        spec(containers=[{**A, "tty": True}]),
        spec(containers=[{"name": "a", "image": "9"}]),
        spec(containers=[{"name": "a", "image": "9", "tty": True}]),
    ),
    "a new item comes before the old": (POD, spec(containers=[A]), spec(containers=[B]), spec(containers=[B, A])),
    "null removes a field of an item": (
        POD,
        spec(containers=[{**A, "tty": True}]),
        spec(containers=[{"name": "a", "tty": None}]),
        spec(containers=[A]),
    ),
    "an item is deleted": (
        POD,
        spec(containers=[A, B]),
        spec(containers=[{"$patch": "delete", "name": "a"}]),
        spec(containers=[B]),
    ),
    "deleting an item that is not there does nothing": (
        POD,
        spec(containers=[A]),
        spec(containers=[{"$patch": "delete", "name": "z"}]),
        spec(containers=[A]),
    ),
    "an item is deleted while another is added": (
        POD,
        spec(containers=[A, B]),
        spec(containers=[C, {"$patch": "delete", "name": "a"}]),
        spec(containers=[C, B]),
    ),
    "deletion comes before merging": (
        POD,
        spec(containers=[{**A, "tty": True}]),
        spec(containers=[A, {"$patch": "delete", "name": "a"}]),
        spec(containers=[A]),
    ),
    "a list is replaced on demand": (
        POD,
        spec(containers=[A, B]),
        spec(containers=[C, {"$patch": "replace"}]),
        spec(containers=[C]),
    ),
    "a list is emptied on demand": (
        POD,
        spec(containers=[A, B]),
        spec(containers=[{"$patch": "replace"}]),
        spec(containers=[]),
    ),
    "null removes a list": (POD, spec(containers=[A], volumes=named("v")), spec(volumes=None), spec(containers=[A])),
    "an empty patch list changes nothing": (POD, spec(containers=[A]), spec(containers=[]), spec(containers=[A])),
    "a list meets nothing": (POD, spec(), spec(containers=[A, B]), spec(containers=[A, B])),
    "deletions in a new list leave no trace": (
        POD,
        spec(),
        spec(containers=[A, {"$patch": "delete", "name": "b"}]),
        spec(containers=[A]),
    ),
    "a list item's null fields are dropped when new": (
        POD,
        spec(containers=[A]),
        spec(containers=[{"name": "b", "image": "2", "tty": None}]),
        spec(containers=[B, A]),
    ),
    "lists inside of items merge": (
        POD,
        spec(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]),
        spec(containers=[{"name": "a", "env": [{"name": "Y", "value": "3"}]}]),
        spec(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]}]),
    ),
    "env items are deleted inside of a container": (
        POD,
        spec(containers=[{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]),
        spec(containers=[{"name": "a", "env": [{"name": "X", "$patch": "delete"}]}]),
        spec(containers=[{"name": "a", "env": [{"name": "Y", "value": "2"}]}]),
    ),
    "container ports merge by containerPort": (
        POD,
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80, "name": "h"}]}]),
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]),
        spec(containers=[{"name": "a", "ports": [{"containerPort": 80, "name": "h", "protocol": "TCP"}]}]),
    ),
    "volume mounts merge by mountPath": (
        POD,
        spec(containers=[{"name": "a", "volumeMounts": [{"mountPath": "/x", "name": "v"}]}]),
        spec(containers=[{"name": "a", "volumeMounts": [{"mountPath": "/x", "readOnly": True}]}]),
        spec(containers=[{"name": "a", "volumeMounts": [{"mountPath": "/x", "name": "v", "readOnly": True}]}]),
    ),
    "init containers merge by name": (
        POD,
        spec(initContainers=[A]),
        spec(initContainers=[{"name": "a", "tty": True}]),
        spec(initContainers=[{**A, "tty": True}]),
    ),
    "image pull secrets merge by name": (
        POD,
        spec(imagePullSecrets=named("a")),
        spec(imagePullSecrets=named("b")),
        spec(imagePullSecrets=named("b", "a")),
    ),
    "service ports merge by port": (
        SERVICE,
        spec(ports=[{"port": 80, "name": "h"}]),
        spec(ports=[{"port": 80, "nodePort": 30000}]),
        spec(ports=[{"port": 80, "name": "h", "nodePort": 30000}]),
    ),
    "owner references merge by uid": (
        POD,
        meta(ownerReferences=[{"uid": "1", "name": "x"}]),
        meta(ownerReferences=[{"uid": "1", "controller": True}]),
        meta(ownerReferences=[{"uid": "1", "name": "x", "controller": True}]),
    ),
    "conditions merge by type": (
        POD,
        {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}]}},
    ),
    "node addresses merge by type": (
        NODE,
        {"status": {"addresses": [{"type": "InternalIP", "address": "1"}]}},
        {"status": {"addresses": [{"type": "Hostname", "address": "h"}]}},
        {"status": {"addresses": [{"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "1"}]}},
    ),
    "host aliases merge by ip": (
        POD,
        spec(hostAliases=[{"ip": "1", "hostnames": ["a"]}]),
        spec(hostAliases=[{"ip": "1", "hostnames": ["b"]}]),
        spec(hostAliases=[{"ip": "1", "hostnames": ["b"]}]),
    ),
    "an image is set deep inside a deployment": (
        DEPLOYMENT,
        {"spec": {"replicas": 2, "template": {"spec": {"containers": [A, B]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "new"}]}}}},
        {"spec": {"replicas": 2, "template": {"spec": {"containers": [A, {"name": "b", "image": "new"}]}}}},
    ),
    "rollout restart adds an annotation": (
        DEPLOYMENT,
        {"spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [A]}}}},
        {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}},
        {
            "spec": {
                "template": {
                    "metadata": {"labels": {"a": "b"}, "annotations": {"kubectl.kubernetes.io/restartedAt": "now"}},
                    "spec": {"containers": [A]},
                }
            }
        },
    ),
    # lists that do not merge
    "tolerations are replaced": (
        POD,
        spec(tolerations=[{"key": "a"}]),
        spec(tolerations=[{"key": "b"}]),
        spec(tolerations=[{"key": "b"}]),
    ),
    "args are replaced": (
        POD,
        spec(containers=[{"name": "a", "args": ["1", "2"]}]),
        spec(containers=[{"name": "a", "args": ["3"]}]),
        spec(containers=[{"name": "a", "args": ["3"]}]),
    ),
    "rules of a role are replaced": (
        ROLE,
        {"rules": [{"verbs": ["get"]}]},
        {"rules": [{"verbs": ["list"]}]},
        {"rules": [{"verbs": ["list"]}]},
    ),
    "a replaced list may become empty": (
        POD,
        spec(tolerations=[{"key": "a"}]),
        spec(tolerations=[]),
        spec(tolerations=[]),
    ),
    "directives in a replaced list leave no trace": (
        POD,
        spec(tolerations=[{"key": "a"}]),
        spec(tolerations=[{"$patch": "replace"}, {"key": "b"}]),
        spec(tolerations=[{"key": "b"}]),
    ),
    # lists of scalars
    "finalizers are a union": (POD, meta(finalizers=["a"]), meta(finalizers=["b"]), meta(finalizers=["b", "a"])),
    "a known finalizer is not doubled": (
        POD,
        meta(finalizers=["a", "b"]),
        meta(finalizers=["a"]),
        meta(finalizers=["a", "b"]),
    ),
    "finalizers are deleted by list": (
        POD,
        meta(finalizers=["a", "b", "c"]),
        meta(**{"$deleteFromPrimitiveList/finalizers": ["b"]}),
        meta(finalizers=["a", "c"]),
    ),
    "deletion and addition together": (
        POD,
        meta(finalizers=["a", "b"]),
        meta(**{"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}),
        meta(finalizers=["c", "b"]),
    ),
    "deletion from nothing does nothing": (
        POD,
        meta(name="x"),
        meta(**{"$deleteFromPrimitiveList/finalizers": ["a"]}),
        meta(name="x"),
    ),
    "the order of scalars is set": (
        POD,
        meta(finalizers=["a", "b"]),
        meta(**{"$setElementOrder/finalizers": ["c", "b", "a"], "finalizers": ["c"]}),
        meta(finalizers=["c", "b", "a"]),
    ),
    # $setElementOrder
    "the order alone is set": (
        POD,
        spec(containers=[A, B, C]),
        spec(**{"$setElementOrder/containers": named("c", "a", "b")}),
        spec(containers=[C, A, B]),
    ),
    "the order is set while an item changes": (
        POD,
        spec(containers=[A, B]),
        spec(**{"$setElementOrder/containers": named("b", "a"), "containers": [{"name": "a", "image": "9"}]}),
        spec(containers=[B, {"name": "a", "image": "9"}]),
    ),
    "the order is set while an item is added": (
        POD,
        spec(containers=[A, B]),
        spec(**{"$setElementOrder/containers": named("a", "c", "b"), "containers": [C]}),
        spec(containers=[A, C, B]),
    ),
    "the order is set while an item goes": (
        POD,
        spec(containers=[A, B, C]),
        spec(**{"$setElementOrder/containers": named("c", "b"), "containers": [{"name": "a", "$patch": "delete"}]}),
        spec(containers=[C, B]),
    ),
    "a new item stands where a deleted one was": (
        POD,
        spec(containers=[A, B, C]),
        spec(
            **{
                "$setElementOrder/containers": named("b", "d"),
                "containers": [{"name": "d"}, {"name": "a", "$patch": "delete"}],
            }
        ),
        spec(containers=[B, C, {"name": "d"}]),
    ),
    "items the order does not name keep their place": (
        POD,
        spec(containers=[A, B, C]),
        spec(**{"$setElementOrder/containers": named("c", "b")}),
        spec(containers=[A, C, B]),
    ),
    "an order for an absent list is nothing": (
        POD,
        spec(nodeName="x"),
        spec(**{"$setElementOrder/containers": named("a")}),
        spec(nodeName="x"),
    ),
    "an order with a new list": (
        POD,
        spec(),
        spec(**{"$setElementOrder/containers": named("b", "a"), "containers": [B, A]}),
        spec(containers=[B, A]),
    ),
    "an order inside of an item": (
        POD,
        spec(containers=[{"name": "a", "env": named("X", "Y")}]),
        spec(containers=[{"name": "a", "$setElementOrder/env": named("Y", "X"), "env": [{"name": "Y", "value": "1"}]}]),
        spec(containers=[{"name": "a", "env": [{"name": "Y", "value": "1"}, {"name": "X"}]}]),
    ),
    "an order in a new item is not kept": (
        POD,
        spec(containers=[A]),
        spec(containers=[{"name": "b", "image": "2", "$setElementOrder/env": named("Y"), "env": named("Y")}]),
        spec(containers=[{"name": "b", "image": "2", "env": named("Y")}, A]),
    ),
    # $retainKeys
    "retained keys drop the others": (
        DEPLOYMENT,
        spec(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
        spec(strategy={"$retainKeys": ["type"], "type": "Recreate"}),
        spec(strategy={"type": "Recreate"}),
    ),
    "a volume changes its source": (
        POD,
        spec(volumes=[{"name": "v", "emptyDir": {}}]),
        spec(volumes=[{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]),
        spec(volumes=[{"name": "v", "configMap": {"name": "c"}}]),
    ),
    "retained keys may be named without a value": (
        DEPLOYMENT,
        spec(strategy={"type": "RollingUpdate", "rollingUpdate": {}}),
        spec(strategy={"$retainKeys": ["type", "rollingUpdate"], "rollingUpdate": None}),
        spec(strategy={"type": "RollingUpdate"}),
    ),
    "retained keys on an absent object leave no trace": (
        DEPLOYMENT,
        spec(replicas=1),
        spec(strategy={"$retainKeys": ["type"], "type": "Recreate"}),
        spec(replicas=1, strategy={"type": "Recreate"}),
    ),
    "a selector with strategy replace is replaced": (
        PDB,
        spec(selector={"matchLabels": {"a": "1"}}),
        spec(selector={"matchLabels": {"b": "2"}}),
        spec(selector={"matchLabels": {"b": "2"}}),
    ),
    "a selector without a strategy merges": (
        DEPLOYMENT,
        spec(selector={"matchLabels": {"a": "1"}}),
        spec(selector={"matchLabels": {"b": "2"}}),
        spec(selector={"matchLabels": {"a": "1", "b": "2"}}),
    ),
}


@pytest.mark.parametrize("case", CASES, ids=lambda name: name.replace(" ", "-"))
def test_strategic_merge(case):
    type_, doc, patch, expected = CASES[case]
    result = apply(type_, doc, patch)
    assert result == expected
    assert "$" not in "".join(all_keys(result))


def all_keys(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from all_keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from all_keys(item)


def test_there_are_enough_cases():
    assert len(CASES) >= 60


@pytest.mark.parametrize(
    ("type_", "doc", "patch", "error"),
    [
        (POD, spec(), [], BadRequest),
        (POD, spec(), "x", BadRequest),
        (POD, meta(labels={}), meta(labels={"$patch": "frobnicate"}), BadRequest),
        (POD, spec(containers=[A]), spec(containers=[{"image": "x"}]), BadRequest),
        (POD, spec(containers=[A]), spec(containers=[{"$patch": "delete"}]), BadRequest),
        (POD, spec(containers=[A]), spec(containers=[{"$patch": "merge", "name": "a"}]), BadRequest),
        (POD, spec(containers=[A]), spec(containers=["a"]), BadRequest),
        (POD, spec(containers=[A]), spec(containers=[{"name": {"x": 1}}]), BadRequest),
        (POD, meta(finalizers=["a"]), meta(finalizers=[["b"]]), Invalid),
        (POD, meta(finalizers=["a"]), meta(**{"$deleteFromPrimitiveList": ["b"]}), BadRequest),
        (POD, spec(containers=[A]), spec(**{"$setElementOrder/containers": "x"}), BadRequest),
        (POD, spec(containers=[A]), spec(**{"$setElementOrder": []}), BadRequest),
        (
            POD,
            spec(containers=[A, B]),
            spec(**{"$setElementOrder/containers": named("a", "b"), "containers": [B, A]}),
            BadRequest,
        ),
        (POD, spec(containers=[A]), spec(**{"$setElementOrder/containers": named("a"), "containers": [B]}), BadRequest),
        (DEPLOYMENT, spec(strategy={}), spec(strategy={"$retainKeys": "type"}), BadRequest),
        (DEPLOYMENT, spec(strategy={}), spec(strategy={"$retainKeys": ["type"], "rollingUpdate": {}}), BadRequest),
    ],
)
def test_patches_that_make_no_sense_are_refused(type_, doc, patch, error):
    with pytest.raises(error):
        apply(type_, doc, patch)


names = st.sampled_from("abcde")
items = st.fixed_dictionaries({"name": names}, optional={"image": st.sampled_from("xyz"), "tty": st.booleans()})
containers = st.lists(items, max_size=4, unique_by=lambda item: item["name"])
pods = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(names, names, max_size=3),
                "finalizers": st.lists(names, unique=True, max_size=3),
            },
        )
    },
    optional={
        "spec": st.fixed_dictionaries(
            {"containers": containers},
            optional={"tolerations": st.lists(st.fixed_dictionaries({"key": names}), max_size=3), "nodeName": names},
        )
    },
)


@settings(max_examples=200, deadline=None)
@given(pods, pods)
def test_applying_a_patch_twice_changes_nothing_more(doc, patch):
    once = apply(POD, doc, patch)
    assert apply(POD, once, patch) == once


@settings(max_examples=200, deadline=None)
@given(pods, pods)
def test_no_item_is_lost_and_no_item_is_made_up(doc, patch):
    def keys(obj):
        return {item["name"] for item in obj.get("spec", {}).get("containers", ())}

    assert keys(apply(POD, doc, patch)) == keys(doc) | keys(patch)


@settings(max_examples=100, deadline=None)
@given(pods, st.dictionaries(names, names, max_size=3))
def test_lists_the_patch_does_not_mention_keep_their_order(doc, labels):
    assert apply(POD, doc, {"metadata": {"labels": labels}}).get("spec") == doc.get("spec")


@settings(max_examples=200, deadline=None)
@given(containers, containers, st.permutations("abcde"), st.integers(0, 5))
def test_set_element_order_is_obeyed(live, patched, order, cut):
    mentioned = {item["name"] for item in patched} | set(order[:cut])
    wanted = [name for name in order if name in mentioned]
    patch = sorted(patched, key=lambda item: order.index(item["name"]))
    result = apply(
        POD, spec(containers=live), spec(**{"$setElementOrder/containers": named(*wanted), "containers": patch})
    )
    found = [item["name"] for item in result["spec"]["containers"]]
    assert [name for name in found if name in mentioned] == [name for name in wanted if name in found]
    others = [item["name"] for item in live if item["name"] not in mentioned]
    assert [name for name in found if name not in mentioned] == others


wild = st.recursive(
    st.none() | st.integers(0, 2) | names,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "containers",
                    "spec",
                    "finalizers",
                    "metadata",
                    "$patch",
                    "$retainKeys",
                    "$setElementOrder/containers",
                    "$deleteFromPrimitiveList/finalizers",
                ]
            ),
            inner | st.sampled_from(["delete", "replace", "merge"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(pods, st.dictionaries(st.sampled_from(["spec", "metadata", "$patch"]), wild, max_size=3))
def test_any_patch_is_applied_or_refused_but_no_directive_is_stored(doc, patch):
    try:
        result = apply(POD, doc, patch)
    except ApiError as error:
        assert error.code in (400, 422)
    else:
        assert not any(key.startswith("$") for key in all_keys(result))
