"""The description tells the truth: every path is in it, and every spec has the fields that are read."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from api_world import prepared_world
from test_api_gate import paths_of

from shoal.control.api.specs import SPECS
from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.policy import KINDS as POLICIES
from shoal.control.domain.specs import KINDS


class Noting(Reader):
    """Notes which fields were asked for."""

    asked: dict[str, set[str]] = {}

    def __init__(self, value: Any, path: str, errors: list[Any]) -> None:
        super().__init__(value, path, errors)
        self.asked.setdefault(path, set())

    def raw(self, name: str) -> Any:
        self.asked[self.path].add(name)
        return super().raw(name)

    def part(self, name: str) -> Reader | None:
        value = self.raw(name)
        return None if value is None else Noting(value, self.at(name), self.errors)

    def parts(self, name: str, most: int = 0) -> list[Reader]:
        value = self.raw(name)
        return [Noting(item, f"{self.at(name)}[]", self.errors) for item in value or ()]

    def mixed(self, name: str, most: int = 0) -> list[Any]:
        return [item for item in self.parts(name) if isinstance(item, Reader)]


def inlined(schema: Any, components: dict[str, Any]) -> Any:
    """The schema with what it refers to in place of the references."""
    if isinstance(schema, list):
        return [inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return inlined(components[schema["$ref"].rpartition("/")[2]], components)
    return {name: inlined(inner, components) for name, inner in schema.items()}


def sample(schema: dict[str, Any]) -> Any:
    """A value with every field that a schema names."""
    if "anyOf" in schema:
        return sample(max(schema["anyOf"], key=lambda each: "properties" in each))
    if "properties" in schema:
        return {name: sample(inner) for name, inner in schema["properties"].items()}
    if schema.get("type") == "array":
        return [sample(schema["items"])]
    if "enum" in schema:
        return schema["enum"][0]
    return {"string": "1", "integer": 1, "number": 1, "boolean": True, "object": {}}[schema["type"]]


def closed_objects(schema: dict[str, Any], path: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    if "properties" in schema:
        found[path] = set(schema["properties"])
        for name, inner in schema["properties"].items():
            found |= closed_objects(inner, f"{path}.{name}")
    elif schema.get("type") == "array":
        found |= closed_objects(schema["items"], f"{path}[]")
    for each in schema.get("anyOf", ()):
        found |= closed_objects(each, path)
    return found


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_schema_of_a_spec_has_exactly_the_fields_that_are_read(kind: str) -> None:
    (found,), components = msgspec.json.schema_components([SPECS[kind]])
    schema = inlined(found, components)
    Noting.asked = {}
    value = sample(schema)
    KINDS[kind].read(Noting(value, "spec", []))
    # of some fields there may be one at a time, so each is read alone
    alone: list[dict[str, Any]] = []
    if kind == "App":
        alone = [{"healthcheck": {name: probe}} for name, probe in value["healthcheck"].items()]
    if kind in ("App", "Environment"):
        steps = [{name: each} for name, each in value["rollout"]["steps"][0].items()]
        fields = {"steps": steps, "waves": value["rollout"]["waves"]}
        alone += [{"rollout": fields}, *([{"sentinel": {"rollout": fields}}] if kind == "Environment" else ())]
    if kind == "Policy":
        alone = [{**dict.fromkeys(POLICIES), name: value[name]} for name in POLICIES]
        alone += [{"match": [{name: each}]} for name, each in value["match"][0].items()]
    if kind == "Route":
        alone = [{"app": None}]
    for changes in alone:
        KINDS[kind].read(Noting({**value, **changes}, "spec", []))
    for path, names in closed_objects(schema, "spec").items():
        assert Noting.asked.get(path, set()) == names, path


async def test_every_path_and_method_is_described_and_everything_referred_to_exists(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        found = (await world.nobody("GET", "/openapi.json")).json()
        described = {
            (method.upper(), re.sub(r"{\w+}", "shop", path))
            for path, methods in found["paths"].items()
            for method in methods
        }
        assert described == {(method, path) for method, path in paths_of(world.api) if path.startswith("/api/v1")}
        names = set(re.findall(r'"#/components/schemas/(\w+)"', str(found).replace("'", '"')))
        assert names <= set(found["components"]["schemas"])
        ids = [operation["operationId"] for methods in found["paths"].values() for operation in methods.values()]
        assert len(ids) == len(set(ids))
        for methods in found["paths"].values():
            for operation in methods.values():
                assert {"401", "403", "422", "500", "503"} <= set(operation["responses"])


async def test_every_field_that_users_write_says_what_it_means(tmp_path: Path) -> None:
    async with prepared_world(tmp_path) as world:
        found = (await world.nobody("GET", "/openapi.json")).json()["components"]["schemas"]
    specs = [found[f"{kind}Spec"] for kind in SPECS]
    seen, silent = set(), set()
    while specs:
        spec = specs.pop()
        if spec["title"] in seen:
            continue
        seen.add(spec["title"])
        silent |= {
            f"{spec['title']}.{name}"
            for name, field in spec.get("properties", {}).items()
            if not field.get("description")
        }
        specs += [found[name] for name in re.findall(r"#/components/schemas/(\w+)", str(spec))]
    assert {"AppSpec", "RolloutFields", "NamedMatch"} <= seen
    assert not silent


async def test_the_description_is_valid_openapi(tmp_path: Path) -> None:
    from openapi_spec_validator import validate

    async with prepared_world(tmp_path) as world:
        validate((await world.nobody("GET", "/openapi.json")).json())


async def test_the_page_of_the_api_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    class Links(HTMLParser):
        found: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.found += [value or "" for name, value in attrs if name in ("src", "href")]

    async with prepared_world(tmp_path) as world:
        page = await world.nobody("GET", "/docs")
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        links = Links()
        links.feed(page.text)
        assert links.found == ["/openapi.json"] and "://" not in page.text
        assert "'sha256-" in page.headers["content-security-policy"]
        assert "unsafe" not in page.headers["content-security-policy"]
