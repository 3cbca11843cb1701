"""For every kind there is: whatever is sent, the server answers properly, and what it accepts is a sound object."""

from __future__ import annotations

import pytest
from cluster_attack import attack_custom_kind, attack_kind
from cluster_objects import collection, example, resources

from shoal.kube.objects import Obj
from shoal.kube.resources import Resource
from shoal.kube.schema import Form, Type, type_of_kind
from shoal.testing.servers import local_server


@pytest.mark.parametrize("resource", resources(), ids=lambda r: f"{r.api_version}-{r.kind}")
async def test_what_is_accepted_is_sound_and_what_is_refused_leaves_nothing(resource: Resource) -> None:
    await attack_kind(resource, rounds=12, seed=1)


@pytest.mark.parametrize("resource", resources(), ids=lambda r: f"{r.api_version}-{r.kind}")
async def test_a_new_object_has_what_its_schema_requires_and_is_unchanged_when_written_back(resource: Resource) -> None:
    async with local_server() as server:
        made = await server.post(collection(resource), example(resource.api_version, resource.kind))
        type_ = type_of_kind(resource.group, resource.version, resource.kind)
        assert _missing(made, type_, "") == []
        if "update" in resource.verbs:
            again = await server.put(f"{collection(resource)}/{made['metadata']['name']}", made)
            assert again == made


def _missing(obj: Obj, type_: Type, path: str) -> list[str]:
    """The required fields that the object or an object inside it does not have."""
    found = [f"{path}.{name}" for name in type_.required if obj.get(name) is None]
    for name, value in obj.items():
        field = type_.fields.get(name)
        if field is None or name == "metadata":
            continue
        inner = field.type.element if field.type.form in (Form.LIST, Form.MAP) else field.type
        if inner.form is Form.STRUCT and value is not None:
            items = value if field.type.form is Form.LIST else value.values() if inner is not field.type else [value]
            for item in items:
                found += _missing(item, inner, f"{path}.{name}")
    return found


async def test_the_same_holds_for_custom_resources() -> None:
    await attack_custom_kind(rounds=40, seed=1)
