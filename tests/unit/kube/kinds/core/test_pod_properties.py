"""For any object of the right types: the rules never raise, defaults are final, valid pods stay valid."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.kinds.checks import validate_metadata, validate_metadata_update
from shoal.kube.kinds.core import RULES
from shoal.kube.kinds.core.pod import POD
from shoal.kube.kinds.core.pod_update import prepare_ephemeral_containers, prepare_resize
from shoal.kube.objects import Obj
from shoal.kube.schema import Form, Type, type_of_kind

TEXTS = st.sampled_from(
    [
        "", "a", "a-b", "A", "a/b", "example.com/a", "..", "/a", "a/../b", " a ", "10.0.0.1", "::1", "10.0.0.0/8", "None",
        "Always", "Never", "TCP", "UDP", "In", "Exists", "NotIn", "Gt", "ClusterIP", "NodePort", "LoadBalancer",
        "ExternalName", "Local", "Cluster", "Localhost", "Container", "Pod", "BestEffort", "linux", "windows", "Bound",
        "IPv4", "metadata.labels['a']", "metadata.name", "limits.cpu", "ClientIP", "ü" * 70, "iqn.2001-04.com:a",
        "kubernetes.io/tls", "25%", "SIGTERM", "Managed", "volume:1", "DoNotSchedule", "Equal", "NoExecute", "file",
    ]
)  # fmt: skip
KEYS = st.sampled_from(["a", "cpu", "memory", "storage", "pods", "hugepages-2Mi", "x.io/y", "a b", "requests.cpu"])
QUANTITIES = st.sampled_from(["0", "1", "-1", "100m", "1Gi", "2Mi", "1u", "1500m", "5n", "1e-6", "12E"])
INTEGERS = st.sampled_from([-1, 0, 1, 2, 80, 600, 65536, 2**31, 2**40])


def values(kind: Type, depth: int) -> st.SearchStrategy[Any]:
    """Values of a type as they come out of the schema: right JSON types, any field missing or empty."""
    form = kind.form
    if form is Form.STRUCT:
        if depth <= 0:
            return st.just({})
        fields = {name: values(field.type, depth - 1) for name, field in kind.fields.items() if field.type is not kind}
        return st.lists(st.sampled_from(sorted(fields)), max_size=7, unique=True).flatmap(
            lambda names: st.fixed_dictionaries({name: fields[name] for name in names})
        )
    if form is Form.LIST:
        return st.lists(values(kind.element, depth), max_size=2) if depth > 0 else st.just([])
    if form is Form.MAP:
        return st.dictionaries(KEYS, values(kind.element, depth - 1), max_size=2)
    return {
        Form.STRING: TEXTS,
        Form.INTEGER: INTEGERS,
        Form.NUMBER: INTEGERS,
        Form.BOOLEAN: st.booleans(),
        Form.BYTES: st.sampled_from(["", "eA==", "e30="]),
        Form.TIME: st.just("2024-01-01T00:00:00Z"),
        Form.MICRO_TIME: st.just("2024-01-01T00:00:00.000000Z"),
        Form.QUANTITY: QUANTITIES,
        Form.INT_OR_STRING: st.one_of(TEXTS, INTEGERS),
    }.get(form, st.just({}))


def objects(kind: str) -> st.SearchStrategy[Obj]:
    """Objects with the fields that every rule looks at, so that few examples reach deep."""
    top = type_of_kind("", "v1", kind)
    parts = {name: values(field.type, 6 if kind == "Pod" else 5) for name, field in top.fields.items()}
    wanted = [name for name in parts if name not in ("apiVersion", "kind")]
    return st.fixed_dictionaries({name: parts[name] for name in wanted})


KINDS = sorted(kind for _, _, kind in RULES)
_STRATEGIES = {kind: objects(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_rules_never_raise(kind: str, data: st.DataObject) -> None:
    rules = RULES["", "v1", kind]
    new, old = data.draw(_STRATEGIES[kind]), data.draw(_STRATEGIES[kind])
    validate_metadata(new, namespaced=True, name_errors=rules.name_errors)
    validate_metadata_update(new, old)
    for obj in (new, old):
        rules.default(obj)
    made = copy.deepcopy(new)
    rules.prepare_create(made)
    for error in rules.validate_create(made):
        assert str(error)
    rules.warnings(made)
    for read in rules.selectable.values():
        assert isinstance(read(made), str)
    before = copy.deepcopy(old)
    for prepare, validate in (
        (rules.prepare_update, rules.validate_update),
        (rules.prepare_status, rules.validate_status),
        *((lambda _new, _old: None, check) for check in rules.subresource_validation.values()),
    ):
        changed = copy.deepcopy(new)
        prepare(changed, old)
        validate(changed, old)
        assert old == before, "old objects are read only"
    if kind == "Pod":
        for subresource, step in (("ephemeralcontainers", prepare_ephemeral_containers), ("resize", prepare_resize)):
            changed = copy.deepcopy(new)
            step(changed, old)
            rules.subresource_validation[subresource](changed, old)
            assert old == before


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_defaults_are_final(kind: str, data: st.DataObject) -> None:
    rules = RULES["", "v1", kind]
    obj = data.draw(_STRATEGIES[kind])
    rules.default(obj)
    once = copy.deepcopy(obj)
    rules.default(obj)
    assert obj == once


@st.composite
def good_pods(draw: st.DrawFn) -> Obj:
    volumes = draw(st.lists(st.sampled_from(["data", "logs", "tmp"]), unique=True))
    sources: st.SearchStrategy[Obj] = st.sampled_from(
        [{}, {"emptyDir": {}}, {"hostPath": {"path": "/a"}}, {"configMap": {"name": "c"}}]
    )
    probe = st.sampled_from([{"httpGet": {"port": 80}}, {"tcpSocket": {"port": "http"}}, {"exec": {"command": ["a"]}}])

    def container(name: str) -> Obj:
        made: Obj = {"name": name, "image": draw(st.sampled_from(["a", "a:1", "x.io/a/b:2"]))}
        if draw(st.booleans()):
            made["ports"] = [{"containerPort": draw(st.integers(1, 65535)), "name": "http"}]
        if draw(st.booleans()):
            made["resources"] = {"limits": {"cpu": draw(st.sampled_from(["1", "500m", "1u"])), "memory": "1Gi"}}
        if draw(st.booleans()):
            made["livenessProbe"] = draw(probe)
        made["volumeMounts"] = [{"name": volume, "mountPath": f"/{volume}"} for volume in volumes]
        return made

    names = draw(st.lists(st.sampled_from(["main", "side", "proxy"]), min_size=1, unique=True))
    spec: Obj = {
        "containers": [container(name) for name in names],
        "volumes": [{"name": volume, **draw(sources)} for volume in volumes],
        "restartPolicy": draw(st.sampled_from(["Always", "OnFailure", "Never"])),
        "hostNetwork": draw(st.booleans()),
    }
    if spec["hostNetwork"]:
        for each in spec["containers"][1:]:
            each.pop("ports", None)  # one node has each port once
    return {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}


@settings(max_examples=80, deadline=None)
@given(pod=good_pods())
def test_a_good_pod_is_good_after_defaulting_and_unchanged_by_an_update(pod: Obj) -> None:
    POD.default(pod)
    POD.prepare_create(pod)
    assert POD.validate_create(pod) == []
    again = copy.deepcopy(pod)
    POD.default(again)
    POD.prepare_update(again, pod)
    assert again == pod
    assert POD.validate_update(again, pod) == []
