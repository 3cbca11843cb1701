"""Field sets: their laws, their text, and the sets of objects."""

from __future__ import annotations

import copy

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.kube.ownership import fieldset
from shoal.kube.ownership.compare import applied_fields, compare, fields_of
from shoal.kube.schema import ANY, Field, Form, Type, type_of_kind

POD = type_of_kind("", "v1", "Pod")
DEPLOYMENT = type_of_kind("apps", "v1", "Deployment")
SERVICE = type_of_kind("", "v1", "Service")

elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "i:1"])
nodes = st.recursive(
    st.just({}),
    lambda inner: st.dictionaries(elements | st.just("."), inner, min_size=1, max_size=3),
    max_leaves=10,
)
raw_sets = st.dictionaries(elements, nodes, max_size=3)
sets = raw_sets.map(fieldset.from_json)


def members(fields):
    """The set as a plain Python set of paths: the meaning against which the operations are checked."""

    def walk(node, path):
        for element, child in node.items():
            if element == ".":
                continue
            here = (*path, element)
            if not child or "." in child:
                yield here
            yield from walk(child, here)

    return set(walk(fields, ()))


def only(path):
    """The set whose one member is this path."""
    single = {}
    for element in reversed(path):
        single = {element: single}
    return single


def is_tidy(fields, root=True):
    if not root and set(fields) == {"."}:
        return False
    return all(element == "." or is_tidy(node, False) for element, node in fields.items())


@settings(max_examples=150, deadline=None)
@given(sets, sets)
def test_operations_mean_what_they_mean_for_sets(left, right):
    before = copy.deepcopy((left, right))
    for operation, meaning in (
        (fieldset.union, set.union),
        (fieldset.difference, set.difference),
        (fieldset.intersection, set.intersection),
    ):
        result = operation(left, right)
        assert members(result) == meaning(members(left), members(right)), operation.__name__
        assert is_tidy(result)
        assert bool(result) == bool(members(result)), "no node may remain that says nothing"
    assert (left, right) == before


@settings(max_examples=150, deadline=None)
@given(sets, sets)
def test_recursive_difference_takes_everything_below_a_member(left, right):
    taken = members(right)
    expected = {path for path in members(left) if not any(path[:n] in taken for n in range(1, len(path) + 1))}
    assert members(fieldset.recursive_difference(left, right)) == expected


@settings(max_examples=100, deadline=None)
@given(sets)
def test_sets_survive_json_and_equal_sets_look_equal(fields):
    assert fieldset.from_json(orjson.loads(orjson.dumps(fields))) == fields
    assert fieldset.union(fields, fields) == fields
    assert fieldset.difference(fields, fields) == {}
    for path in members(fields):
        assert fieldset.intersection(fields, only(path)) == only(path)


@settings(max_examples=100, deadline=None)
@given(sets, sets)
def test_what_is_taken_away_and_put_back_gives_the_union(left, right):
    assert fieldset.union(fieldset.difference(left, right), right) == fieldset.union(left, right)
    assert fieldset.difference(left, right) is left or fieldset.intersection(left, right)


@pytest.mark.parametrize(
    "bad", [[], "x", None, {"a": {}}, {"f:a": 1}, {"k:{": {}}, {"k:[1]": {}}, {"i:x": {}}, {"f:a": {"x": {}}}]
)
def test_what_is_no_field_set_is_refused(bad):
    with pytest.raises(ValueError):
        fieldset.from_json(bad)


def test_unknown_kinds_of_elements_are_dropped():
    assert fieldset.from_json({"z:future": {"f:a": {}}, "f:b": {".": {}}, ".": {}}) == {"f:b": {}}


def test_elements_from_outside_are_brought_into_our_form():
    assert fieldset.from_json({'k:{ "b": 1, "a": "x"}': {"f:y": {}}}) == {'k:{"a":"x","b":1}': {"f:y": {}}}


def test_paths_print_as_kubernetes_prints_them():
    fields = {
        "f:spec": {
            "f:containers": {
                'k:{"name":"x"}': {".": {}, "f:image": {}, "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {}}}
            },
            "f:replicas": {},
        },
        "f:metadata": {"f:finalizers": {'v:"a/b"': {}}, "f:labels": {"f:app": {}}},
    }
    assert sorted(fieldset.iterate(fields)) == [
        '.metadata.finalizers[="a/b"]',
        ".metadata.labels.app",
        '.spec.containers[name="x"]',
        '.spec.containers[name="x"].image',
        '.spec.containers[name="x"].ports[containerPort=80,protocol="TCP"]',
        ".spec.replicas",
    ]


def test_members_come_before_what_is_below_them():
    fields = {"f:b": {}, "f:a": {".": {}, "f:z": {}}}
    assert list(fieldset.iterate(fields)) == [".a", ".b", ".a.z"]


def test_keys_are_sorted_and_escaped_as_upstream_does():
    assert (
        fieldset.key_element({"protocol": "TCP", "containerPort": 8080}) == 'k:{"containerPort":8080,"protocol":"TCP"}'
    )
    assert fieldset.value_element("a&<b>") == 'v:"a\\u0026\\u003cb\\u003e"'
    assert fieldset.element_text('v:"a\\u0026"') == '[="a&"]'


def pod():
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": "2024-01-01T00:00:00Z",
            "generation": 1,
            "generateName": "p-",
            "labels": {"app": "web"},
            "finalizers": ["a/b"],
            "ownerReferences": [{"uid": "1", "name": "o"}],
            "managedFields": [{"manager": "x"}],
        },
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}],
                    "env": [{"name": "A", "value": "1"}],
                    "args": ["x"],
                    "resources": {},
                }
            ],
            "nodeSelector": {"a": "b"},
            "volumes": [{"name": "v", "emptyDir": {}}],
        },
    }


def test_a_create_owns_what_a_real_server_would_record():
    assert fields_of(pod(), POD) == {
        "f:metadata": {
            "f:generateName": {},
            "f:labels": {".": {}, "f:app": {}},
            "f:finalizers": {".": {}, 'v:"a/b"': {}},
            "f:ownerReferences": {".": {}, 'k:{"uid":"1"}': {}},
        },
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:name": {},
                    "f:args": {},
                    "f:resources": {},
                    "f:env": {".": {}, 'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                    "f:ports": {
                        ".": {},
                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
                        'k:{"containerPort":80,"protocol":"UDP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}},
                    },
                }
            },
            "f:nodeSelector": {},
            "f:volumes": {".": {}, 'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}},
        },
    }


def test_structs_that_are_never_absent_are_not_created():
    deployment = {
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}},
        }
    }
    assert fields_of(deployment, DEPLOYMENT) == {
        "f:spec": {
            "f:replicas": {},
            "f:strategy": {"f:type": {}, "f:rollingUpdate": {".": {}, "f:maxSurge": {}}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}},
            },
        }
    }


def test_an_applied_configuration_names_its_leaves_and_items():
    assert applied_fields(pod(), POD) == {
        "f:metadata": {
            "f:generateName": {},
            "f:labels": {"f:app": {}},
            "f:finalizers": {'v:"a/b"': {}},
            "f:ownerReferences": {'k:{"uid":"1"}': {}},
        },
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    ".": {},
                    "f:name": {},
                    "f:args": {},
                    "f:resources": {},
                    "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                    "f:ports": {
                        'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}},
                        'k:{"containerPort":80,"protocol":"UDP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}},
                    },
                }
            },
            "f:nodeSelector": {},
            "f:volumes": {'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}},
        },
    }


def test_duplicate_items_are_owned_together():
    obj = {"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}}
    env = fields_of(obj, POD)["f:spec"]["f:containers"]['k:{"name":"c"}']["f:env"]
    assert env == {".": {}, 'k:{"name":"A"}': {}}


def changes(old, new, type_=POD):
    return compare(old, new, type_)


def test_equal_objects_have_no_differences():
    assert changes(pod(), pod()) == ({}, {})


def test_server_fields_are_never_a_difference():
    new = pod()
    new["metadata"] |= {"resourceVersion": "2", "managedFields": [], "generation": 2, "uid": "x"}
    assert changes(pod(), new) == ({}, {})


def test_changes_additions_and_removals_are_distinguished():
    new = pod()
    new["metadata"]["labels"] = {"tier": "front"}
    new["spec"]["containers"][0]["env"] = [{"name": "A", "value": "2"}, {"name": "B"}]
    new["spec"]["containers"][0]["ports"].pop()
    del new["spec"]["volumes"]
    changed, removed = changes(pod(), new)
    assert changed == {
        "f:metadata": {"f:labels": {"f:tier": {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    "f:env": {'k:{"name":"A"}': {"f:value": {}}, 'k:{"name":"B"}': {".": {}, "f:name": {}}}
                }
            }
        },
    }
    assert removed == {
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"c"}': {
                    "f:ports": {
                        'k:{"containerPort":80,"protocol":"UDP"}': {".": {}, "f:containerPort": {}, "f:protocol": {}}
                    }
                }
            },
            "f:volumes": {".": {}, 'k:{"name":"v"}': {".": {}, "f:emptyDir": {}, "f:name": {}}},
        },
    }


def test_the_order_of_an_associative_list_is_no_difference_but_that_of_an_atomic_one_is():
    new = pod()
    new["spec"]["containers"][0]["ports"].reverse()
    assert changes(pod(), new) == ({}, {})
    old, new = (
        {"spec": {"containers": [{"name": "c", "args": ["1", "2"]}]}},
        {"spec": {"containers": [{"name": "c", "args": ["2", "1"]}]}},
    )
    assert changes(old, new).changed == {"f:spec": {"f:containers": {'k:{"name":"c"}': {"f:args": {}}}}}


def test_a_status_that_appears_does_not_create_the_status_itself():
    new = pod() | {"status": {"phase": "Running"}}
    assert changes(pod(), new) == ({"f:status": {"f:phase": {}}}, {})
    assert changes(new, pod()) == ({}, {"f:status": {"f:phase": {}}})
    assert changes(pod(), pod() | {"status": {}}) == ({}, {})


@pytest.mark.parametrize(
    ("old", "new", "changed", "removed"),
    [
        ([], [{"name": "A"}, {"name": "A"}], {'k:{"name":"A"}': {}}, {}),
        ([{"name": "A"}, {"name": "A"}], [{"name": "A"}, {"name": "A", "value": "1"}], {'k:{"name":"A"}': {}}, {}),
        ([{"name": "A"}, {"name": "A"}], [{"name": "A"}], {'k:{"name":"A"}': {".": {}, "f:name": {}}}, {}),
        (
            [{"name": "A"}],
            [{"name": "A"}, {"name": "A"}],
            {'k:{"name":"A"}': {}},
            {'k:{"name":"A"}': {".": {}, "f:name": {}}},
        ),
        (
            [{"name": "A"}, {"name": "A"}],
            [{"name": "B"}],
            {'k:{"name":"B"}': {".": {}, "f:name": {}}},
            {'k:{"name":"A"}': {}},
        ),
    ],
)
def test_duplicates_come_and_go_as_one(old, new, changed, removed):
    def of(env):
        return {"spec": {"containers": [{"name": "c", "env": env}]}}

    found = changes(of(old), of(new))

    def env_of(fields):
        return fields.get("f:spec", {}).get("f:containers", {}).get('k:{"name":"c"}', {}).get("f:env", {})

    assert (env_of(found.changed), env_of(found.removed)) == (changed, removed)


def thing_type():
    """A custom resource with one of everything."""
    item = Type(Form.STRUCT)
    item.fields = {
        "id": Field("id", Type(Form.STRING)),
        "n": Field("n", Type(Form.INTEGER)),
        "tags": Field("tags", listed(Type(Form.STRING), "set")),
    }
    opened = Type(Form.STRUCT)
    opened.preserve_unknown = True
    opened.fields = {"known": Field("known", Type(Form.STRING))}
    whole = Type(Form.STRUCT)
    whole.fields = {"x": Field("x", Type(Form.INTEGER))}
    whole.atomic = True
    free_map = Type(Form.MAP)
    free_map.element = item
    spec = Type(Form.STRUCT)
    spec.fields = {
        "n": Field("n", Type(Form.INTEGER)),
        "items": Field("items", listed(item, "map", "id")),
        "plain": Field("plain", listed(Type(Form.STRING), "atomic")),
        "set": Field("set", listed(Type(Form.STRING), "set")),
        "whole": Field("whole", whole),
        "map": Field("map", free_map),
        "open": Field("open", opened),
        "any": Field("any", ANY),
    }
    root = Type(Form.STRUCT, "com.example.v1.Thing")
    root.fields = {"metadata": POD.fields["metadata"], "spec": Field("spec", spec)}
    return root


def listed(element, list_type, *keys):
    made = Type(Form.LIST)
    made.element, made.list_type, made.keys = element, list_type, keys
    return made


THING = thing_type()


def test_custom_resources_own_their_containers_too():
    obj = {
        "spec": {
            "n": 1,
            "open": {"known": "a", "more": {"x": [1]}},
            "any": {"a": {"b": 1}, "l": [1]},
            "whole": {"x": 1},
            "plain": ["a"],
        }
    }
    assert fields_of(obj, THING) == {
        "f:spec": {
            ".": {},
            "f:n": {},
            "f:open": {".": {}, "f:known": {}, "f:more": {".": {}, "f:x": {}}},
            "f:any": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:l": {}},
            "f:whole": {},
            "f:plain": {},
        }
    }
    assert applied_fields(obj, THING) == {
        "f:spec": {
            "f:n": {},
            "f:open": {"f:known": {}, "f:more": {".": {}, "f:x": {}}},
            "f:any": {"f:a": {".": {}, "f:b": {}}, "f:l": {}},
            "f:whole": {},
            "f:plain": {},
        }
    }


def test_a_value_of_unknown_type_may_change_its_kind():
    old, new = {"spec": {"any": {"a": {"b": 1}}}}, {"spec": {"any": {"a": 1}}}
    assert compare(old, new, THING) == ({"f:spec": {"f:any": {"f:a": {}}}}, {"f:spec": {"f:any": {"f:a": {"f:b": {}}}}})
    assert compare(new, old, THING) == ({"f:spec": {"f:any": {"f:a": {".": {}, "f:b": {}}}}}, {})


def test_values_that_do_not_fit_their_type_break_nothing():
    for wrong in (1, "x", [], [1], {"a": 1}, None, True):
        for field in THING.fields["spec"].type.fields:
            obj = {"spec": {field: wrong}, "metadata": {"labels": wrong}}
            fields_of(obj, THING)
            applied_fields(obj, THING)
            compare(obj, {"spec": {field: {"x": 1}}}, THING)
            compare({"spec": {field: ["x"]}}, obj, THING)


letters = st.sampled_from("abc")
thing_items = st.fixed_dictionaries(
    {"id": letters}, optional={"n": st.integers(0, 2), "tags": st.lists(letters, unique=True, max_size=2)}
)
things = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("t")}, optional={"labels": st.dictionaries(letters, letters, max_size=2)}
        )
    },
    optional={
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "n": st.integers(0, 2),
                "items": st.lists(thing_items, max_size=3, unique_by=lambda item: item["id"]),
                "plain": st.lists(letters, max_size=2),
                "set": st.lists(letters, unique=True, max_size=3),
                "whole": st.fixed_dictionaries({"x": st.integers(0, 2)}),
                "map": st.dictionaries(letters, thing_items, max_size=2),
                "open": st.dictionaries(st.sampled_from(["known", "a"]), letters, max_size=2),
                "any": st.dictionaries(letters, letters | st.dictionaries(letters, letters, max_size=2), max_size=2),
            },
        )
    },
)


@settings(max_examples=100, deadline=None)
@given(things, things)
def test_differences_lead_from_the_fields_of_one_object_to_those_of_the_other(old, new):
    changed, removed = compare(old, new, THING)
    before, after = fields_of(old, THING), fields_of(new, THING)
    assert members(after) - members(before) <= members(changed) <= members(after)
    assert members(before) - members(after) <= members(removed) <= members(before)
    assert not members(removed) & members(after)


@settings(max_examples=100, deadline=None)
@given(things)
def test_every_leaf_of_an_object_is_owned(obj):
    assert leaves(obj, THING) <= members(fields_of(obj, THING))
    assert leaves(obj, THING) - empties(obj) <= members(applied_fields(obj, THING))


def leaves(obj, type_, path=()):
    """Paths of all leaves of an object, found the slow way."""
    found = set()
    for key, value in obj.items():
        here = (*path, f"f:{key}")
        field = type_.fields.get(key)
        inner = type_.element if type_.form is Form.MAP else field.type if field else ANY
        if here[:2] in {("f:metadata", "f:name")}:
            continue
        if inner.form is Form.LIST and inner.list_type != "atomic" and value:
            for item in value:
                if inner.list_type == "set":
                    found.add((*here, f'v:"{item}"'))
                else:
                    found |= leaves(item, inner.element, (*here, f'k:{{"id":"{item["id"]}"}}'))
        elif isinstance(value, dict) and not inner.atomic and value:
            found |= leaves(value, inner, here)
        elif here != ("f:metadata",):
            found.add(here)
    return found


def empties(value, path=()):
    """Paths of empty lists, which a configuration does not own."""
    found = set()
    for key, item in value.items() if isinstance(value, dict) else ():
        found |= empties(item, (*path, f"f:{key}"))
        if item == []:
            found.add((*path, f"f:{key}"))
        if isinstance(item, list):
            for one in item:
                if isinstance(one, dict):
                    found |= empties(one, (*path, f"f:{key}", f'k:{{"id":"{one["id"]}"}}'))
    return found
