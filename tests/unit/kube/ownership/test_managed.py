"""managedFields of creates, updates and patches."""

from __future__ import annotations

import copy

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.ownership import fieldset, managed
from shoal.kube.ownership.compare import compare
from shoal.kube.schema import Field, Form, Type, type_of_kind

CONFIG_MAP = type_of_kind("", "v1", "ConfigMap")
DEPLOYMENT = type_of_kind("apps", "v1", "Deployment")
POD = type_of_kind("", "v1", "Pod")


def at(second):
    return f"2024-01-01T00:00:{second:02}Z"


def config_map(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "data": data}


def created(obj, manager="creator", type_=CONFIG_MAP, api_version="v1", second=0):
    obj = copy.deepcopy(obj)
    managed.update_managers(None, obj, type_, manager=manager, api_version=api_version, now=at(second))
    obj["metadata"]["uid"] = "u"
    return obj


def updated(old, new, manager="updater", type_=CONFIG_MAP, api_version="v1", second=1, **options):
    new = copy.deepcopy(new)
    new["metadata"].setdefault("uid", "u")
    managed.update_managers(old, new, type_, manager=manager, api_version=api_version, now=at(second), **options)
    return new


def entries(obj):
    return obj["metadata"].get("managedFields")


def owners(obj):
    return {entry["manager"]: entry["fieldsV1"] for entry in entries(obj) or ()}


def test_a_create_is_recorded_whole():
    assert entries(created(config_map(a="1"))) == [
        {
            "manager": "creator",
            "operation": "Update",
            "apiVersion": "v1",
            "time": at(0),
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:a": {}}},
        }
    ]


def test_an_empty_manager_is_unknown():
    assert list(owners(created(config_map(a="1"), manager=""))) == ["unknown"]


def test_an_object_without_fields_has_no_managers():
    assert entries(created({"metadata": {"name": "x"}})) is None


def test_the_fields_of_an_entry_come_in_the_order_kubernetes_writes_them():
    entry = entries(created(config_map(a="1")))[0]
    assert list(entry) == ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1"]


def test_an_update_takes_what_it_changes_and_leaves_the_rest():
    old = created(config_map(a="1", b="1"))
    new = updated(old, config_map(a="1", b="2", c="3"))
    assert owners(new) == {
        "creator": {"f:data": {".": {}, "f:a": {}}},
        "updater": {"f:data": {"f:b": {}, "f:c": {}}},
    }


def test_removed_fields_have_no_owner_afterwards():
    old = created(config_map(a="1", b="1"))
    new = updated(old, config_map(a="1"))
    assert owners(new) == {"creator": {"f:data": {".": {}, "f:a": {}}}}
    assert entries(new)[0]["time"] == at(0)


def test_a_manager_without_fields_disappears():
    old = created({"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": False})
    old = updated(old, {"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": True}, manager="other")
    new = updated(old, {"metadata": {"name": "c"}, "data": {"a": "1"}, "immutable": False}, manager="third", second=2)
    assert set(owners(new)) == {"creator", "third"}


def test_the_same_manager_adds_to_its_entry():
    old = created(config_map(a="1"), manager="m")
    new = updated(old, config_map(a="2", b="1"), manager="m", second=5)
    assert entries(new) == [{**entries(old)[0], "time": at(5), "fieldsV1": {"f:data": {".": {}, "f:a": {}, "f:b": {}}}}]


def test_another_version_or_subresource_is_another_entry():
    old = created(config_map(a="1"), manager="m")
    new = updated(old, config_map(a="2"), manager="m", api_version="v2")
    assert [(e["apiVersion"], e["fieldsV1"]) for e in entries(new)] == [
        ("v1", {"f:data": {}}),
        ("v2", {"f:data": {"f:a": {}}}),
    ]
    pod = created({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}, manager="m", type_=POD)
    new = updated(pod, {**pod, "status": {"phase": "Running"}}, manager="m", type_=POD, subresource="status")
    assert [e.get("subresource") for e in entries(new)] == [None, "status"]


def test_a_write_without_a_change_changes_nothing():
    old = created(config_map(a="1"))
    sent_back = updated(old, old, manager="other")
    assert sent_back == old
    without = updated(old, config_map(a="1"), manager="other")
    assert entries(without) == entries(old)


def test_only_a_create_or_an_apply_starts_tracking():
    old = config_map(a="1")
    new = updated(old, config_map(a="2"))
    assert entries(new) is None


@pytest.mark.parametrize("reset", [[], [{}], [{"manager": "", "operation": ""}]])
def test_a_request_may_forget_all_managers(reset):
    old = created(config_map(a="1"))
    new = config_map(a="2")
    new["metadata"]["managedFields"] = reset
    assert entries(updated(old, new)) is None


def test_a_request_may_rewrite_managers():
    old = created(config_map(a="1"), manager="kubectl-client-side-apply")
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"][0] |= {"manager": "kubectl", "operation": "Apply"}
    written = updated(old, new)
    assert [(e["manager"], e["operation"], e["time"]) for e in entries(written)] == [("kubectl", "Apply", at(0))]


@pytest.mark.parametrize(
    "broken",
    [
        [{"manager": "x"}],
        [{"manager": "x", "operation": "Replace", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "x", "operation": "Update", "apiVersion": "", "fieldsType": "FieldsV1", "fieldsV1": {}}],
        [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV2", "fieldsV1": {}}],
        [
            {
                "manager": "x",
                "operation": "Update",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"bad": {}},
            }
        ],
        [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": []}, 5],
        "nonsense",
    ],
)
def test_managers_that_make_no_sense_are_ignored(broken):
    old = created(config_map(a="1"))
    new = config_map(a="1")
    new["metadata"]["managedFields"] = broken
    assert entries(updated(old, new)) == entries(old)


def test_a_subresource_cannot_rewrite_managers():
    old = created({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}, type_=POD)
    new = {**copy.deepcopy(old), "status": {"phase": "Running"}}
    new["metadata"]["managedFields"] = []
    written = updated(old, new, manager="kubelet", type_=POD, subresource="status")
    assert owners(written) == {"creator": {"f:spec": {"f:nodeName": {}}}, "kubelet": {"f:status": {"f:phase": {}}}}


def test_what_an_endpoint_does_not_write_changes_no_owner():
    status = fieldset.from_json({"f:status": {}})
    old = created({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}, type_=POD)
    old = updated(old, {**old, "status": {"phase": "Pending"}}, "kubelet", POD, subresource="status")
    new = {**copy.deepcopy(old), "status": {"phase": "Running"}}
    new["spec"]["nodeName"] = "m"
    written = updated(old, new, "client", POD, second=2, reset_fields=status)
    assert owners(written) == {"kubelet": {"f:status": {"f:phase": {}}}, "client": {"f:spec": {"f:nodeName": {}}}}


def test_entries_are_sorted_by_operation_time_and_manager():
    def entry(manager, operation, second, version="v1"):
        return {
            "manager": manager,
            "operation": operation,
            "apiVersion": version,
            "time": at(second),
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {f"f:{manager}": {}}},
        }

    expected = [
        entry("z", "Apply", 9),
        entry("b", "Update", 1),
        entry("a", "Update", 2),
        entry("c", "Update", 2),
        entry("c", "Update", 2, "v2"),
    ]
    assert managed.encode(managed.decode(reversed(expected))) == expected


def test_more_than_ten_updaters_become_ancient():
    obj = created(config_map(k0="0"), manager="m0", second=0)
    for number in range(1, 14):
        obj = updated(obj, config_map(**obj["data"], **{f"k{number}": "1"}), f"m{number}", second=number)
    updaters = [entry for entry in entries(obj) if entry["operation"] == "Update"]
    assert len(updaters) == managed.MAX_UPDATE_MANAGERS
    assert updaters[0]["manager"] == "ancient-changes"
    assert updaters[0]["fieldsV1"] == {"f:data": {".": {}, **{f"f:k{n}": {} for n in range(5)}}}
    assert updaters[0]["time"] == at(4)
    assert [entry["manager"] for entry in updaters[1:]] == [f"m{n}" for n in range(5, 14)]


def test_ancient_changes_are_kept_by_version():
    obj = created(config_map(k0="0"), manager="m0", second=0)
    for number in range(1, 14):
        version = "v1" if number % 2 else "v2"
        obj = updated(
            obj, config_map(**obj["data"], **{f"k{number}": "1"}), f"m{number}", api_version=version, second=number
        )
    ancient = {entry["apiVersion"] for entry in entries(obj) if entry["manager"] == "ancient-changes"}
    assert ancient == {"v1", "v2"}
    assert len(entries(obj)) == managed.MAX_UPDATE_MANAGERS


def test_no_field_is_lost_to_the_cap():
    def entry(name, second):
        return managed.ManagedFieldsEntry({"f:data": {f"f:{name}": {}}}, "v1", at(second))

    for ancient_at in range(12):
        managers = {managed.manager_id(f"m{n}", "Update", "v1"): entry(f"m{n}", n) for n in range(12)}
        managers[managed.manager_id(managed.ANCIENT, "Update", "v1")] = entry("ancient", ancient_at)
        managed.cap_update_managers(managers)
        assert len(managers) == managed.MAX_UPDATE_MANAGERS
        kept = {key for one in managers.values() for key in one.fields["f:data"]}
        assert kept == {"f:ancient", *(f"f:m{n}" for n in range(12))}


def test_times_alone_are_no_change():
    old = created(config_map(a="1"))
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"][0]["time"] = at(9)
    managed.keep_times_of_no_change(old, new)
    assert new == old


@pytest.mark.parametrize("change", [{"data": {"a": "2"}}, {"immutable": True}])
def test_times_next_to_a_change_stay(change):
    old = created(config_map(a="1"))
    new = copy.deepcopy(old) | change
    new["metadata"]["managedFields"][0]["time"] = at(9)
    managed.keep_times_of_no_change(old, new)
    assert entries(new)[0]["time"] == at(9)


def test_a_new_owner_is_a_change():
    old = created(config_map(a="1"))
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"][0] |= {"time": at(9), "manager": "other"}
    managed.keep_times_of_no_change(old, new)
    assert entries(new)[0]["time"] == at(9)


def test_entries_follow_a_schema_that_became_atomic():
    inner = Type(Form.STRUCT)
    inner.fields = {"x": Field("x", Type(Form.INTEGER)), "y": Field("y", Type(Form.INTEGER))}
    spec = Type(Form.STRUCT)
    spec.fields = {"inner": Field("inner", inner), "n": Field("n", Type(Form.INTEGER))}
    root = Type(Form.STRUCT, "com.example.v1.Thing")
    root.fields = {"metadata": CONFIG_MAP.fields["metadata"], "spec": Field("spec", spec)}
    obj = created({"metadata": {"name": "t"}, "spec": {"inner": {"x": 1}}}, type_=root)
    assert owners(obj) == {"creator": {"f:spec": {".": {}, "f:inner": {".": {}, "f:x": {}}}}}
    atomic = Type(Form.STRUCT)
    atomic.fields, atomic.atomic = inner.fields, True
    spec.fields = {"inner": Field("inner", atomic), "n": Field("n", Type(Form.INTEGER))}
    later = Type(Form.STRUCT, "com.example.v1.Thing")
    later.fields = {"metadata": CONFIG_MAP.fields["metadata"], "spec": Field("spec", spec)}
    new = updated(obj, {**obj, "spec": {"inner": {"x": 1}, "n": 1}}, type_=later)
    assert owners(new) == {"creator": {"f:spec": {".": {}, "f:inner": {}}}, "updater": {"f:spec": {"f:n": {}}}}


keys = st.sampled_from("abcd")
datas = st.dictionaries(keys, st.sampled_from("12"), max_size=3)
writes = st.lists(st.tuples(st.sampled_from(["m1", "m2", "m3"]), datas, st.sampled_from(["v1", "v2"])), max_size=8)


@settings(max_examples=150, deadline=None)
@given(datas, writes)
def test_every_field_has_exactly_one_updater_and_it_is_the_last_to_change_it(data, history):
    obj = created(config_map(**data), manager="m0")
    last = dict.fromkeys(data, "m0")
    tracked = bool(entries(obj))
    for second, (manager, values, version) in enumerate(history, 1):
        before = obj["data"]
        obj = updated(obj, config_map(**values), manager, api_version=version, second=second)
        last = {key: last[key] if before.get(key) == value else manager for key, value in values.items()}
        tracked = tracked and bool(entries(obj))
        if not tracked:
            return  # an object that lost all its managers is not tracked any more
        found = {}
        for entry in entries(obj):
            for key in entry["fieldsV1"].get("f:data", {}):
                if key != ".":
                    assert key not in found
                    found[key] = entry["manager"]
        assert found == {f"f:{key}": manager for key, manager in last.items()}


@settings(max_examples=100, deadline=None)
@given(datas, writes)
def test_entries_survive_the_way_through_json(data, history):
    obj = created(config_map(**data), manager="m0")
    for second, (manager, values, version) in enumerate(history, 1):
        obj = updated(obj, config_map(**values), manager, api_version=version, second=second)
    stored = orjson.loads(orjson.dumps(obj))
    assert stored == obj
    assert managed.encode(managed.decode(entries(stored) or [], trusted=False)) == (entries(obj) or [])
    assert compare(stored, obj, CONFIG_MAP) == ({}, {})


@settings(max_examples=100, deadline=None)
@given(datas, datas)
def test_an_update_never_changes_the_old_object(before, after):
    old = created(config_map(**before))
    copied = copy.deepcopy(old)
    updated(old, config_map(**after))
    assert old == copied
