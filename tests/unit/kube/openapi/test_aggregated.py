"""OpenAPI documents of aggregated servers."""

from __future__ import annotations

import pytest

from shoal.kube.openapi.aggregated import joined, part_of

META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


DOCUMENT = {
    "paths": {"/apis/sea.example/v1/ships": {"get": {"schema": reference("Ship")}}, "/apis/sea.example/v10/x": {}},
    "definitions": {
        "Ship": {"properties": {"mast": reference("Mast"), "metadata": reference(META)}},
        "Mast": {"type": "object", "properties": {"more": {"type": "array", "items": reference("Mast")}}},
        META: {"type": "object", "description": "an older one"},
        "Unused": {},
    },
}


def test_a_part_has_the_paths_of_its_group_version_and_what_they_refer_to() -> None:
    paths, definitions = part_of(DOCUMENT, "sea.example", "v1")
    assert list(paths) == ["/apis/sea.example/v1/ships"]
    assert definitions.keys() == {"Ship", "Mast", META}
    with pytest.raises(ValueError, match="is missing"):
        part_of({**DOCUMENT, "definitions": {"Ship": DOCUMENT["definitions"]["Ship"]}}, "sea.example", "v1")


def test_a_different_definition_of_the_same_name_gets_another_name() -> None:
    part = part_of(DOCUMENT, "sea.example", "v1")
    known = {"Mast": {"type": "string"}, META: {"type": "object"}}
    (paths, definitions), (again, nothing) = joined([part, part], known)
    assert definitions.keys() == {"Ship", "Mast_v2"}  # metadata is that of the first server
    assert definitions["Ship"]["properties"]["mast"] == reference("Mast_v2")
    assert definitions["Mast_v2"]["properties"]["more"]["items"] == reference("Mast_v2")
    assert paths == part[0] == again
    assert nothing == {}
