"""The reference pages of the site, made of what the code declares: objects, REST, settings, kinds, queries, …"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from shoal.app.main import COMMANDS
from shoal.app.settings import PROCESSES
from shoal.base import settings
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import Metrics
from shoal.control.api.wiring import make_api as make_control_api
from shoal.control.database.engine import Databases
from shoal.control.database.tokens import ApiTokens
from shoal.control.domain.fleet import Fleet
from shoal.crds import sentinel, shard
from shoal.navigator.answers.query.fields import QUERY_KINDS
from shoal.rest.api import RestApi

Schema = Mapping[str, Any]

# What users write in files, in the order in which they meet it. `Region` and `Cluster` are the administrator's.
_OBJECTS = (
    "App", "Route", "Policy", "ApiKey", "Environment", "Project", "Secret", "Credential", "Sentinel", "Region",
    "Cluster",
)  # fmt: skip
_NO_SEALER: Any = None  # nothing is sealed here
_REF = "#/components/schemas/"
_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def reference_pages() -> dict[str, str]:
    """Every page by its path in the site."""
    described = asyncio.run(_control_document())
    schemas: Schema = described["components"]["schemas"]
    pages = {f"reference/objects/{name.lower()}.md": _object_page(name, schemas) for name in _OBJECTS}
    pages["reference/objects/index.md"] = _object_index(schemas)
    pages["reference/rest.md"] = _rest_page(described)
    pages["reference/settings.md"] = _settings_page()
    pages["reference/kinds.md"] = _kinds_page()
    pages["reference/query.md"] = _query_page()
    pages["reference/commands.md"] = _commands_page()
    return pages


async def _control_document() -> Any:
    """The OpenAPI document of the control plane, which needs a database to be made."""
    with tempfile.TemporaryDirectory() as folder:
        clock, ids = RealClock(), Ids()
        databases = await Databases.open({"main": f"sqlite:///{folder}/fleet.db"}, clock=clock, ids=ids)
        try:
            api = make_control_api(
                Fleet(databases, ids, _NO_SEALER), ApiTokens(databases, clock), databases, clock=clock,
                metrics=Metrics(), urls=["https://control"], ca=lambda: "", version="",
            )  # fmt: skip
            return await _document(api)
        finally:
            await databases.close()


async def _document(api: RestApi[Any, Any]) -> Any:
    page = next(page for page in api.pages if page.path == "/openapi.json")
    answer: Any = await page.handler(None)  # type: ignore[arg-type]  # the document is the same for every request
    return json.loads(answer.body)


# objects


def _object_index(schemas: Schema) -> str:
    lines = [
        "# Objects of the fleet",
        "",
        "What `shoal apply -f` takes. Every object has `kind`, `metadata` and `spec`.",
        "",
    ]
    lines += ["| kind | is |", "|---|---|"]
    lines += [f"| [{name}]({name.lower()}.md) | {_about(schemas[f'{name}Spec'])} |" for name in _OBJECTS]
    return "\n".join(lines) + "\n"


def _object_page(name: str, schemas: Schema) -> str:
    spec = schemas[f"{name}Spec"]
    lines = [f"# {name}", "", _about(spec), "", *_example(name), "Fields of `spec`:", ""]
    lines += _fields(spec, "spec", schemas)
    return "\n".join(lines) + "\n"


def _example(name: str) -> list[str]:
    """The shortest document of the kind in examples/, which tests apply."""
    found = [
        text.strip()
        for path in sorted(_EXAMPLES.glob("*.yaml"))
        for text in path.read_text().split("\n---\n")
        if f"\nkind: {name}\n" in f"\n{text}\n"
    ]
    if not found:
        return []
    lines = [line for line in min(found, key=len).splitlines() if not line.startswith("#")]
    return ["```yaml", *lines, "```", ""]


def _fields(schema: Schema, path: str, schemas: Schema, seen: tuple[str, ...] = ()) -> list[str]:
    """A table of the fields, then one for every object that they lead to."""
    lines = ["| field | type | |", "|---|---|---|"]
    inner: list[tuple[str, str]] = []
    required = set(schema.get("required", ()))
    for name, field in sorted(
        schema.get("properties", {}).items(), key=lambda each: (each[0] not in required, each[0])
    ):
        text, target = _type(field, schemas)
        where = f"{path}.{name}" + ("[]" if field.get("type") == "array" else "")
        if target and target not in seen:
            inner.append((where, target))
        about = " ".join(filter(None, ["**Required.**" if name in required else "", _about(field), _bounds(field)]))
        lines.append(f"| `{name}` | {text} | {_cell(about)} |")
    for where, target in inner:
        lines += ["", f"### {where}", ""]
        if about := _about(schemas[target]):
            lines += [about, ""]
        lines += _fields(schemas[target], where, schemas, (*seen, target))
    return lines


def _type(schema: Schema, schemas: Schema) -> tuple[str, str]:
    """How a type is written, and the object that it leads to."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        found = schemas[name]
        return ("object", name) if found.get("properties") else _type(found, schemas)
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(each)}`" for each in schema["enum"]), ""
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        found = [_type(each, schemas) for each in choices]
        return " or ".join(dict.fromkeys(text for text, _ in found)), next((to for _, to in found if to), "")
    if schema.get("type") == "array":
        text, target = _type(schema.get("items", {}), schemas)
        return f"list of {text}", target
    if schema.get("type") == "object" and isinstance(values := schema.get("additionalProperties"), Mapping):
        text, target = _type(values, schemas)
        return f"map of {text}", target
    return str(schema.get("type", "anything")), ""


def _bounds(schema: Schema) -> str:
    said = [
        f"{word} {schema[key]}"
        for key, word in (
            ("minimum", "At least"), ("maximum", "At most"), ("minLength", "Characters at least"),
            ("maxLength", "Characters at most"), ("minItems", "Items at least"), ("maxItems", "Items at most"),
        )
        if key in schema
    ]  # fmt: skip
    if "default" in schema:
        said.append(f"Default `{json.dumps(schema['default'])}`")
    return ". ".join(said) + ("." if said else "")


def _about(schema: Schema) -> str:
    text = " ".join(str(schema.get("description", "")).split())
    return text if not text or text.endswith((".", ":", "!")) else f"{text}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# REST


def _rest_page(described: Any) -> str:
    lines = ["# REST API of the control plane", "", described["info"]["description"], ""]
    lines.append(
        "A running control plane has this page with all types at `/docs`, and the document at `/openapi.json`."
    )
    by_tag: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            rows = by_tag.setdefault(operation["tags"][0], [])
            rows.append(f"| `{method.upper()}` | `{path}` | {_cell(_about({'description': operation['summary']}))} |")
    for tag, rows in by_tag.items():
        lines += ["", f"## {tag}", "", "| method | path | |", "|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


# settings


def _settings_page() -> str:
    lines = [
        "# Settings of processes",
        "",
        "Each process takes its settings from a file, from variables and from flags; the "
        "[guide](../guides/configuration.md) explains how. `shoal config schema PROCESS` prints the JSON Schema.",
    ]
    for process in PROCESSES.values():
        schema = settings.json_schema(process.settings)
        lines += ["", f"## {process.command}", "", "| setting | type | |", "|---|---|---|"]
        lines += [f"| `{key}` | {kind} | {_cell(about)} |" for key, kind, about in _settings(schema, schema, "")]
    return "\n".join(lines) + "\n"


def _settings(schema: Schema, root: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    for name, each in schema.get("properties", {}).items():
        field = root["$defs"][each["$ref"].rpartition("/")[2]] if "$ref" in each else each
        key = f"{path}{name}"
        if "properties" in field:
            yield from _settings(field, root, f"{key}.")
            continue
        text, _ = _type(field, {}) if "$ref" not in json.dumps(field) else (str(field.get("type", "")), "")
        yield key, text, " ".join(filter(None, [_about(field), _bounds(field)]))


# kinds in clusters


def _kinds_page() -> str:
    lines = [
        "# Kinds that Shoal adds to clusters",
        "",
        "Users write ShardConfigs, and ShardedResources where they have no kind of their own "
        "([guide](../guides/sharding.md)). The others are written by Shoal, and are here for those who look into a "
        "cluster. `kubectl explain` shows the same.",
        "",
    ]
    for definition in (*shard.definitions(), *sentinel.definitions()):
        version = definition["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        names = definition["spec"]["names"]
        lines += [f"## {names['kind']}", "", f"`{definition['spec']['group']}/{version['name']}`. {_about(schema)}", ""]
        for part in ("spec", "status"):
            if part in schema.get("properties", {}):
                lines += [f"### {names['kind']}: {part}", "", "| field | type | |", "|---|---|---|"]
                lines += [
                    f"| `{key}` | {kind} | {_cell(about)} |"
                    for key, kind, about in _crd_fields(schema["properties"][part], part)
                ]
                lines.append("")
    return "\n".join(lines) + "\n"


def _crd_fields(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        key = f"{path}.{name}"
        inner = field.get("items", field) if field.get("type") == "array" else field
        text, _ = _type(field, {})
        about = ["**Required.**" if name in required else "", _about(field), _bounds(field)]
        yield key, text, " ".join(filter(None, about))
        yield from _crd_fields(inner, f"{key}[]" if inner is not field else key)


# queries


_GRAMMAR = """
query  := KIND [where or] [select field {, field} | select * | count [by field {, field}]]
          [order by field [asc|desc] {, field [asc|desc]}] [limit N]
or     := and {or and}
and    := not {and not}
not    := not not | ( or ) | field [op value | [not] in ( value {, value} )]
field  := NAME [. KEY | [ 'KEY' ]]
op     := = | != | ~ | !~ | < | <= | > | >=
""".strip()


def _query_page() -> str:
    lines = [
        "# Query language",
        "",
        "What `shoal query` and saved checks take; the [guide](../guides/navigator.md) has examples. `~` compares with "
        "a regular expression. A text needs quotes when it has spaces or signs; a quote in it is written twice. "
        "Lengths of time are written `90s`, `5m`, `1h30m`, `2d`. A number may be compared with another field of the "
        "object.",
        "",
        "```text",
        _GRAMMAR,
        "```",
    ]
    for kind in QUERY_KINDS.values():
        words = ", ".join(f"`{word}`" for word in kind.words if word != kind.name)
        lines += ["", f"## {kind.name}", ""]
        lines += [f"Also: {words}.", ""] if words else []
        lines += ["| field | type | |", "|---|---|---|"]
        lines += [f"| `{name}` | {field.type.value} | {_cell(field.help)} |" for name, field in kind.fields.items()]
    return "\n".join(lines) + "\n"


# commands


def _commands_page() -> str:
    lines = ["# Commands", "", "What `shoal --help` and `shoal COMMAND --help` print."]
    for command in COMMANDS:
        module, _, attribute = command.target.partition(":")
        group = typer.main.get_command(getattr(import_module(module), attribute))
        lines += ["", f"## shoal {command.name}", "", f"{command.summary[0].upper()}{command.summary[1:]}."]
        for name, text in _helps(group, f"shoal {command.name}"):
            lines += ["", f"### {name}", "", "```text", text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    context = command.make_context(name, [], resilient_parsing=True)
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command.get_help(context)
    for each, below in inner.items():
        if not below.hidden:
            yield from _helps(below, f"{name} {each}")
