"""Server-side apply: ownership, conflicts, removal, order, and migration from client-side apply."""

from __future__ import annotations

import copy

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import BadRequest, Conflict
from shoal.kube.ownership import apply as ssa
from shoal.kube.ownership import fieldset, managed
from shoal.kube.ownership.compare import applied_fields
from shoal.kube.schema import ANY, Field, Form, Type, type_of_kind

CONFIG_MAP = type_of_kind("", "v1", "ConfigMap")
DEPLOYMENT = type_of_kind("apps", "v1", "Deployment")
POD = type_of_kind("", "v1", "Pod")
SERVICE = type_of_kind("", "v1", "Service")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def at(second):
    return f"2024-01-01T00:00:{second:02}Z"


def config_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": data}


BARE = {key: value for key, value in config_map().items() if key != "data"}


def deployment(**spec):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}, "spec": spec}


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec}


def apply(live, config, manager="m", *, type_=CONFIG_MAP, force=False, second=1, **options):
    config = copy.deepcopy(config)
    before = copy.deepcopy(live)
    ssa.prepare(config, type_)
    options.setdefault("api_version", config["apiVersion"])
    result = ssa.apply(live, config, type_, manager=manager, force=force, now=at(second), **options)
    assert live == before, "the stored object must stay as it was"
    result["metadata"].setdefault("uid", "u")
    return result


def update(old, new, manager="u", *, type_=CONFIG_MAP, second=2, **options):
    new = copy.deepcopy(new)
    new["metadata"].setdefault("uid", "u")
    options.setdefault("api_version", new["apiVersion"])
    managed.update_managers(old, new, type_, manager=manager, now=at(second), **options)
    return new


def entries(obj):
    return obj["metadata"].get("managedFields") or []


def owners(obj):
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries(obj)}


def without_managers(obj):
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("managedFields", "uid")}
    return {**obj, "metadata": metadata}


def test_the_first_apply_makes_the_object_and_owns_it():
    obj = apply(None, config_map(a="1"))
    assert without_managers(obj) == config_map(a="1")
    assert entries(obj) == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": at(1),
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}},
        }
    ]


def test_applying_the_same_again_changes_nothing_at_all():
    obj = apply(None, config_map(a="1"))
    assert apply(obj, config_map(a="1"), second=9) == obj


def test_a_changed_value_is_taken_and_the_time_moves():
    obj = apply(apply(None, config_map(a="1")), config_map(a="2"), second=9)
    assert obj["data"] == {"a": "2"}
    assert entries(obj)[0]["time"] == at(9)


def test_a_field_no_longer_applied_is_removed():
    obj = apply(apply(None, config_map(a="1", b="2")), config_map(a="1"))
    assert obj["data"] == {"a": "1"}
    assert owners(obj) == {("m", "Apply"): {"f:data": {"f:a": {}}}}


def test_a_container_whose_fields_are_all_gone_goes_too():
    config = config_map(a="1")
    config["metadata"]["labels"] = {"x": "y"}
    obj = apply(apply(None, config), BARE)
    assert without_managers(obj) == BARE
    assert entries(obj) == []


def test_fields_of_other_managers_stay():
    obj = apply(apply(None, config_map(a="1")), config_map(b="2"), "other")
    assert obj["data"] == {"a": "1", "b": "2"}
    obj = apply(obj, config_map(), "other", second=3)
    assert obj["data"] == {"a": "1"}


def test_a_field_someone_else_also_applies_is_not_removed():
    obj = apply(apply(None, config_map(a="1")), config_map(a="1"), "other")
    assert set(owners(obj)) == {("m", "Apply"), ("other", "Apply")}
    obj = apply(obj, BARE)
    assert obj["data"] == {"a": "1"}
    assert set(owners(obj)) == {("other", "Apply")}


def test_an_empty_object_in_a_configuration_is_owned():
    obj = apply(None, config_map())
    assert obj["data"] == {}
    assert owners(obj) == {("m", "Apply"): {"f:data": {}}}


def test_a_field_an_updater_changed_belongs_to_the_updater():
    obj = apply(None, config_map(a="1", b="1"))
    obj = update(obj, config_map(a="2", b="1"))
    assert owners(obj) == {("m", "Apply"): {"f:data": {"f:b": {}}}, ("u", "Update"): {"f:data": {"f:a": {}}}}
    obj = apply(obj, config_map(b="1"))
    assert obj["data"] == {"a": "2", "b": "1"}


def conflict(live, config, manager="m", **options):
    with pytest.raises(Conflict) as caught:
        apply(live, config, manager, **options)
    return caught.value


def test_one_conflict_reads_as_kubernetes_writes_it():
    live = update(
        apply(None, deployment(replicas=1), type_=DEPLOYMENT), deployment(replicas=5), "scaler", type_=DEPLOYMENT
    )
    error = conflict(live, deployment(replicas=1), type_=DEPLOYMENT)
    assert error.message == 'Apply failed with 1 conflict: conflict with "scaler" using apps/v1: .spec.replicas'
    assert error.causes == (
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "scaler" using apps/v1',
            "field": ".spec.replicas",
        },
    )
    assert error.status()["code"] == 409
    assert error.status()["reason"] == "Conflict"


def test_several_conflicts_read_as_kubernetes_writes_them():
    live = apply(apply(None, config_map(a="1", b="1")), config_map(c="1"), "n")
    live = update(live, {**live, "data": {"a": "1", "b": "1", "c": "1", "d": "1"}}, "u", subresource="extra")
    error = conflict(live, config_map(a="2", b="2", c="2", d="2"), "x")
    assert error.message == (
        'Apply failed with 4 conflicts: conflicts with "m":\n- .data.a\n- .data.b\nconflicts with "n":\n- .data.c\n'
        'conflicts with "u" with subresource "extra" using v1:\n- .data.d'
    )
    assert [cause["field"] for cause in error.causes] == [".data.a", ".data.b", ".data.c", ".data.d"]


def test_an_equal_value_is_shared_and_no_conflict():
    live = apply(apply(None, config_map(a="1")), config_map(a="1"), "other")
    assert owners(live)["m", "Apply"] == owners(live)["other", "Apply"]


def test_quantities_are_compared_by_amount():
    def limited(cpu):
        return pod(containers=[{"name": "c", "resources": {"limits": {"cpu": cpu}}}])

    live = apply(None, limited("1"), type_=POD)
    live = apply(live, limited("1000m"), "other", type_=POD)
    assert live["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "1"
    assert set(owners(live)) == {("m", "Apply"), ("other", "Apply")}


def test_force_takes_the_field_from_its_owner():
    live = apply(apply(None, config_map(a="1", b="1")), config_map(a="2"), "other", force=True)
    assert live["data"] == {"a": "2", "b": "1"}
    assert owners(live) == {("m", "Apply"): {"f:data": {"f:b": {}}}, ("other", "Apply"): {"f:data": {"f:a": {}}}}


def test_the_fields_of_an_object_without_managers_belong_to_before_first_apply():
    live = config_map(a="1", b="1")
    live["metadata"]["uid"] = "u"
    obj = apply(live, config_map(a="1"))
    assert owners(obj) == {
        ("before-first-apply", "Update"): {"f:data": {".": {}, "f:a": {}, "f:b": {}}},
        ("m", "Apply"): {"f:data": {"f:a": {}}},
    }
    error = conflict(live, config_map(a="2"))
    assert error.message == 'Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a'


def containers(*names, **fields):
    return [{"name": name, **fields} for name in names]


def test_list_items_merge_by_key_and_are_removed_by_key():
    live = apply(None, pod(containers=containers("a", "b", image="i")), type_=POD)
    live = apply(live, pod(containers=[{"name": "c", "image": "i"}]), "side", type_=POD)
    assert {item["name"] for item in live["spec"]["containers"]} == {"a", "b", "c"}
    live = apply(live, pod(containers=containers("b", image="i")), type_=POD)
    assert {item["name"] for item in live["spec"]["containers"]} == {"b", "c"}
    live = apply(live, pod(), "side", type_=POD)
    assert [item["name"] for item in live["spec"]["containers"]] == ["b"]


def test_an_item_of_two_managers_loses_only_the_fields_of_the_one_that_drops_it():
    live = apply(None, pod(containers=[{"name": "a", "image": "i"}]), type_=POD)
    live = apply(live, pod(containers=[{"name": "a", "tty": True}]), "side", type_=POD)
    live = apply(live, pod(), type_=POD)
    assert live["spec"]["containers"] == [{"name": "a", "tty": True}]


def test_key_fields_with_defaults_identify_items():
    live = apply(None, pod(containers=[{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]), type_=POD)
    live = apply(
        live, pod(containers=[{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]), "other", type_=POD
    )
    assert live["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}]
    udp = pod(containers=[{"name": "a", "ports": [{"containerPort": 80, "protocol": "UDP"}]}])
    live = apply(live, udp, "third", type_=POD)
    assert len(live["spec"]["containers"][0]["ports"]) == 2


def test_sets_grow_and_shrink_by_value():
    def finalized(*names):
        obj = config_map()
        obj["metadata"]["finalizers"] = list(names)
        return obj

    live = apply(apply(None, finalized("a", "b")), finalized("c"), "other")
    assert live["metadata"]["finalizers"] == ["a", "b", "c"]
    live = apply(live, finalized("b"))
    assert sorted(live["metadata"]["finalizers"]) == ["b", "c"]


def test_atomic_lists_and_maps_have_one_owner():
    live = apply(None, pod(containers=containers("a"), nodeSelector={"x": "1"}, tolerations=[{"key": "k"}]), type_=POD)
    error = conflict(live, pod(nodeSelector={"y": "2"}, tolerations=[{"key": "l"}]), "other", type_=POD)
    assert [cause["field"] for cause in error.causes] == [".spec.nodeSelector", ".spec.tolerations"]
    live = apply(live, pod(nodeSelector={"y": "2"}), "other", type_=POD, force=True)
    assert live["spec"]["nodeSelector"] == {"y": "2"}


@pytest.mark.parametrize(
    ("live", "config", "expected"),
    [
        ("abc", "abc", "abc"),
        ("abc", "cba", "cba"),
        ("ac", "abc", "abc"),
        ("abc", "d", "abcd"),
        ("abc", "b", "abc"),
        ("abc", "ca", "bca"),
        ("ab", "xa", "xab"),
        ("ab", "bx", "abx"),
        ("abcd", "db", "acdb"),
    ],
)
def test_merged_lists_follow_the_configuration_and_keep_the_rest_in_place(live, config, expected):
    base = apply(None, pod(containers=containers(*live)), type_=POD)
    merged = apply(base, pod(containers=containers(*config)), "other", type_=POD)
    assert "".join(item["name"] for item in merged["spec"]["containers"]) == expected


def test_later_defaults_have_no_owner_and_are_kept():
    live = apply(None, deployment(paused=True), type_=DEPLOYMENT)
    live["spec"]["replicas"] = 1
    again = apply(live, deployment(paused=True), type_=DEPLOYMENT, second=9)
    assert again == live
    shared = apply(live, deployment(replicas=1), "other", type_=DEPLOYMENT)
    assert owners(shared)["other", "Apply"] == {"f:spec": {"f:replicas": {}}}


def test_status_stays_what_it_is_on_the_main_resource():
    status = fieldset.from_json({"f:status": {}})
    live = apply(None, deployment(replicas=1) | {"status": {"replicas": 9}}, type_=DEPLOYMENT, reset_fields=status)
    assert owners(live) == {("m", "Apply"): {"f:spec": {"f:replicas": {}}}}
    spec = fieldset.from_json({"f:spec": {}, "f:metadata": {}})
    live = apply(
        live,
        {**deployment(replicas=7), "status": {"observedGeneration": 1}},
        "c",
        type_=DEPLOYMENT,
        subresource="status",
        reset_fields=spec,
    )
    assert owners(live)["c", "Apply"] == {"f:status": {"f:observedGeneration": {}}}
    assert [e["subresource"] for e in entries(live) if e["manager"] == "c"] == ["status"]


def test_a_manager_is_the_same_in_another_version():
    live = apply(None, config_map(a="1", b="1"))
    live = apply(live, config_map(a="1"), api_version="v2", second=5)
    assert live["data"] == {"a": "1"}
    assert [(e["manager"], e["apiVersion"]) for e in entries(live)] == [("m", "v2")]


def test_managed_fields_must_not_be_applied():
    for value in ([], [{}], [{"manager": "x"}]):
        config = config_map(a="1")
        config["metadata"]["managedFields"] = value
        with pytest.raises(BadRequest, match="metadata.managedFields must be nil"):
            apply(None, config)


def test_unknown_fields_and_repeated_items_are_refused():
    with pytest.raises(BadRequest) as caught:
        apply(None, deployment(replicsa=1), type_=DEPLOYMENT)
    assert caught.value.message == (
        "failed to create typed patch object (n/d; apps/v1, Kind=Deployment): .spec.replicsa: field not declared in schema"
    )
    with pytest.raises(BadRequest) as caught:
        apply(None, pod(containers=[{"name": "a", "env": [{"name": "X"}, {"name": "X"}]}]), type_=POD)
    assert caught.value.message == (
        "failed to create typed patch object (n/p; v1, Kind=Pod): "
        '.spec.containers[name="a"].env: duplicate entries for key [name="X"]'
    )
    with pytest.raises(BadRequest, match="omits all key fields"):
        apply(None, pod(containers=[{"image": "x"}]), type_=POD)


def client_side_applied(**data):
    obj = config_map(**data)
    obj["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(config_map(**data)).decode()}
    return update(None, obj, "kubectl-client-side-apply")


def test_kubectl_takes_over_what_it_applied_on_the_client_side():
    live = client_side_applied(a="1", b="1")
    obj = apply(live, config_map(a="2", b="1"), "kubectl")
    assert obj["data"] == {"a": "2", "b": "1"}
    assert conflict(live, config_map(a="2"), "other").causes[0]["field"] == ".data.a"


def test_kubectl_still_conflicts_over_what_others_changed():
    live = client_side_applied(a="1", b="1")
    live = update(live, {**live, "data": {"a": "9", "b": "1"}}, "other")
    error = conflict(live, config_map(a="2", b="2"), "kubectl")
    assert [cause["field"] for cause in error.causes] == [".data.a"]


def test_kubectl_keeps_the_annotation_in_step():
    obj = apply(client_side_applied(a="1"), config_map(a="2"), "kubectl")
    text = obj["metadata"]["annotations"][LAST_APPLIED]
    assert orjson.loads(text) == config_map(a="2")
    assert text.endswith("\n")
    other = apply(client_side_applied(a="1"), config_map(b="2"), "other")
    assert orjson.loads(other["metadata"]["annotations"][LAST_APPLIED]) == config_map(a="1")


def test_an_annotation_that_goes_is_not_brought_back():
    obj = config_map(a="1")
    obj["metadata"]["annotations"] = {LAST_APPLIED: "{}", "x": "y"}
    live = apply(None, obj, "kubectl")
    assert "annotations" not in apply(live, config_map(a="1"), "kubectl")["metadata"]


# A custom resource with one of everything.


def listed(element, list_type, *keys):
    made = Type(Form.LIST)
    made.element, made.list_type, made.keys = element, list_type, keys
    return made


def thing_type():
    item = Type(Form.STRUCT)
    item.fields = {"id": Field("id", Type(Form.STRING)), "n": Field("n", Type(Form.INTEGER))}
    free_map = Type(Form.MAP)
    free_map.element = item
    spec = Type(Form.STRUCT)
    spec.fields = {
        "n": Field("n", Type(Form.INTEGER)),
        "items": Field("items", listed(item, "map", "id")),
        "plain": Field("plain", listed(Type(Form.STRING), "atomic")),
        "set": Field("set", listed(Type(Form.STRING), "set")),
        "map": Field("map", free_map),
        "any": Field("any", ANY),
    }
    root = Type(Form.STRUCT, "com.example.v1.Thing")
    root.fields = {
        "apiVersion": POD.fields["apiVersion"],
        "kind": POD.fields["kind"],
        "metadata": POD.fields["metadata"],
        "spec": Field("spec", spec),
    }
    return root


THING = thing_type()
letters = st.sampled_from("abc")
items = st.fixed_dictionaries({"id": letters}, optional={"n": st.integers(0, 1)})
specs = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(0, 1),
        "items": st.lists(items, min_size=1, max_size=3, unique_by=lambda item: item["id"]),
        "plain": st.lists(letters, max_size=2),
        "set": st.lists(letters, unique=True, min_size=1, max_size=3),
        "map": st.dictionaries(letters, items, min_size=1, max_size=2),
        "any": st.dictionaries(
            letters, st.dictionaries(letters, letters, min_size=1, max_size=2) | letters, min_size=1, max_size=2
        ),
    },
)


def thing(spec):
    obj = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "n"}}
    if spec:
        obj["spec"] = spec
    return obj


def apply_thing(live, spec, manager="m", **options):
    return apply(live, thing(spec), manager, type_=THING, **options)


def paths(fields):
    return set(fieldset.iterate(fields))


@settings(max_examples=120, deadline=None)
@given(specs, specs)
def test_applying_twice_is_applying_once(first, second):
    live = apply_thing(apply_thing(None, first, "a"), second, "b", force=True)
    again = apply_thing(live, second, "b", second=9)
    assert again == live


@settings(max_examples=120, deadline=None)
@given(specs, specs)
def test_a_lone_manager_gets_exactly_what_it_applied_last(first, second):
    live = apply_thing(apply_thing(None, first), second, second=2)
    assert sort_items(without_managers(live)) == sort_items(thing(second))


def sort_items(obj):
    spec = dict(obj.get("spec") or {})
    if "items" in spec:
        spec["items"] = sorted(spec["items"], key=lambda item: item["id"])
    if "set" in spec:
        spec["set"] = sorted(spec["set"])
    return {**obj, "spec": spec}


@settings(max_examples=150, deadline=None)
@given(specs, specs)
def test_there_is_a_conflict_exactly_if_another_owns_a_field_that_would_change(first, second):
    live = apply_thing(None, first, "a")
    forced = apply_thing(live, second, "b", force=True)
    owned_by_a = paths(owners(live).get(("a", "Apply"), {}))
    still_owned = paths(owners(forced).get(("a", "Apply"), {}))
    if owned_by_a - still_owned:
        error = conflict(live, thing(second), "b", type_=THING)
        assert {cause["field"] for cause in error.causes} == owned_by_a - still_owned
    else:
        assert apply_thing(live, second, "b") == forced


@settings(max_examples=120, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), specs), max_size=5))
def test_appliers_own_what_they_applied_and_every_owned_field_exists(history):
    live = None
    for second, (manager, spec) in enumerate(history, 1):
        live = apply_thing(live, spec, manager, force=True, second=second)
        applied = paths(applied_fields(thing(spec), THING))
        assert paths(owners(live).get((manager, "Apply"), {})) == applied
        present = paths(applied_fields(live, THING))
        for fields in owners(live).values():
            assert paths(fields) <= present
        assert present <= set().union(*(paths(fields) for fields in owners(live).values())) | with_parents(live)


def with_parents(live):
    """Containers that exist because something in them does."""
    return {path for path in paths(applied_fields(live, THING)) if path in (".spec",)}


@settings(max_examples=80, deadline=None)
@given(specs, specs, specs)
def test_what_the_last_owner_stops_applying_is_removed(first, second, third):
    live = apply_thing(apply_thing(None, first, "a"), second, "b", force=True)
    live = apply_thing(apply_thing(live, third, "a", force=True, second=3), {}, "b", second=4)
    assert sort_items(without_managers(live)) == sort_items(thing(third))
    empty = apply_thing(live, {}, "a", second=5)
    assert without_managers(empty) == thing({})
    assert entries(empty) == []
