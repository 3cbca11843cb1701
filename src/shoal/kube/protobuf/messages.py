"""The protobuf messages of Kubernetes, with the JSON names of their fields.

``fields.tsv`` has one line per message: its name, then for each field ``number name type flags``. A type that begins
with a dot is of the same package; ``{}`` before a type means a map from texts to it. A line is parsed when its message
is first used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

META = "apimachinery.pkg.apis.meta.v1"
QUANTITY = "apimachinery.pkg.api.resource.Quantity"
TIME, MICRO_TIME, DURATION = f"{META}.Time", f"{META}.MicroTime", f"{META}.Duration"
FIELDS_V1 = f"{META}.FieldsV1"
RAW_EXTENSION = "apimachinery.pkg.runtime.RawExtension"
INT_OR_STRING = "apimachinery.pkg.util.intstr.IntOrString"

_REPEATED, _POINTER, _OMIT_EMPTY, _INLINE = 1, 2, 4, 8

# Groups whose package is not the first part of their name.
_PACKAGES = {
    "": "api.core",
    "rbac.authorization.k8s.io": "api.rbac",
    "flowcontrol.apiserver.k8s.io": "api.flowcontrol",
    "internal.apiserver.k8s.io": "api.apiserverinternal",
    "apiextensions.k8s.io": "apiextensions_apiserver.pkg.apis.apiextensions",
    "apiregistration.k8s.io": "kube_aggregator.pkg.apis.apiregistration",
    "metrics.k8s.io": "metrics.pkg.apis.metrics",
    "meta.k8s.io": "apimachinery.pkg.apis.meta",
}
_PLAIN_GROUPS = frozenset({"apps", "autoscaling", "batch", "policy"})


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message. ``keeps_zero``: a zero is a value of its own, and JSON has it too. ``always``: Go's JSON
    has the field in every object, with a zero if it is not set."""

    number: int
    name: str
    type: str
    repeated: bool
    map: bool
    inline: bool  # in JSON, the fields of this message are fields of the outer one
    keeps_zero: bool
    pointer: bool
    always: bool


@dataclass(frozen=True, slots=True)
class Message:
    name: str
    fields: tuple[Field, ...] = field(repr=False)

    @property
    def is_list(self) -> bool:
        """Whether the message is a list in JSON, such as the values of an extra attribute."""
        return self.name.rpartition(".")[2] in ("ExtraValue", "AttestationValue", "Verbs")


@cache
def _lines() -> dict[str, str]:
    text = (Path(__file__).parent / "fields.tsv").read_text("utf-8")
    return dict(line.split("\t", 1) for line in text.splitlines())


@cache
def message(name: str) -> Message:
    """The message with this name; raises ``KeyError`` if it does not exist."""
    cells = _lines()[name]
    package = name.rpartition(".")[0]
    return Message(name, tuple(_field(cell, package) for cell in cells.split(";") if cell))


def omitted_zeros(name: str) -> frozenset[str]:
    """The JSON names of the fields that Go omits if they are zero or empty; none if the message does not exist."""
    if name not in _lines():
        return frozenset()
    found: set[str] = set()
    for each in message(name).fields:
        if each.inline:
            found |= omitted_zeros(each.type)
        elif not each.keeps_zero:
            found.add(each.name)
    return frozenset(found)


def always_written(name: str) -> dict[str, bool]:
    """The JSON names of the fields that Go writes into every object, and whether an unset one is null because it is a
    pointer; none if the message does not exist."""
    found: dict[str, bool] = {}
    for each in message(name).fields if name in _lines() else ():
        if each.inline:
            found |= always_written(each.type)
        elif each.always:
            found[each.name] = each.pointer
    return found


def _field(cell: str, package: str) -> Field:
    number, name, type_name, flag_text = cell.split(" ")
    flags = int(flag_text)
    is_map = type_name.startswith("{}")
    type_name = type_name.removeprefix("{}")
    if type_name.startswith("."):
        type_name = package + type_name
    single = not (is_map or flags & (_REPEATED | _POINTER))
    return Field(
        number=int(number),
        name=name,
        type=type_name,
        repeated=bool(flags & _REPEATED),
        map=is_map,
        inline=bool(flags & _INLINE),
        keeps_zero=bool(flags & _POINTER) or not flags & _OMIT_EMPTY,
        pointer=bool(flags & _POINTER),
        # omitempty does not omit structs
        always=not flags & _OMIT_EMPTY or (single and (type_name in _lines() or type_name in (TIME, MICRO_TIME))),
    )


@cache
def message_name(api_version: str, kind: str) -> str | None:
    """The message of a kind, or None. Kinds of the meta group (DeleteOptions, Status) are found in every group."""
    group, _, version = api_version.rpartition("/")
    package = _PACKAGES.get(group)
    if package is None and (group in _PLAIN_GROUPS or group.endswith(".k8s.io")):
        package = f"api.{group.partition('.')[0]}"
    for candidate in (f"{package}.{version}.{kind}", f"{META}.{kind}"):
        if candidate in _lines():
            return candidate
    return None
