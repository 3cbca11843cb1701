"""Field selectors: ``metadata.name=web,status.phase!=Failed``, with ``\\\\``, ``\\,`` and ``\\=`` as escapes.

``parse`` reads the text, ``check`` refuses fields that a kind does not support, ``matches`` takes the selectable fields
of one object. An absent field has the empty text as its value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.base.bounded_cache import bounded_cache
from shoal.errors import BadRequest

Fields = Mapping[str, str]
Matcher = Callable[[Fields], bool]


class Requirement(NamedTuple):
    """One condition; ``operator`` is ``=`` or ``!=``."""

    field: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.field}{self.operator}{escape(self.value)}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """All requirements must hold; without any, every object is selected."""

    requirements: tuple[Requirement, ...] = ()
    matches: Matcher = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matches", _compile(self.requirements))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    @property
    def everything(self) -> bool:
        return not self.requirements

    def check(self, supported: Collection[str], *, kind: str = "", generic: bool = False) -> None:
        """Refuse fields that are not in ``supported``. As in Kubernetes, the message includes ``kind`` for some kinds;
        ``generic`` selects the message of kinds that support only name and namespace."""
        for requirement in self.requirements:
            if requirement.field not in supported:
                raise BadRequest(_refusal(requirement.field, kind, generic))

    def exact(self, field: str) -> str | None:
        """The value that the selector requires of the field, if any."""
        for requirement in self.requirements:
            if requirement.field == field and requirement.operator == "=":
                return requirement.value
        return None

    def index_hint(self) -> str | None:
        """``field=value`` of a requirement that an index can answer."""
        for requirement in self.requirements:
            if requirement.operator == "=":
                return f"{requirement.field}={requirement.value}"
        return None

    def renamed(self, names: Mapping[str, str]) -> FieldSelector:
        """The same selector with old names of fields replaced (``spec.host`` is ``spec.nodeName``)."""
        if not any(requirement.field in names for requirement in self.requirements):
            return self
        return FieldSelector(tuple(r._replace(field=names.get(r.field, r.field)) for r in self.requirements))


def _refusal(name: str, kind: str, generic: bool) -> str:
    if generic:
        return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return f"field label not supported for {kind}: {name}" if kind else f"field label not supported: {name}"


def _compile(requirements: tuple[Requirement, ...]) -> Matcher:
    if not requirements:
        return lambda _: True
    if len(requirements) == 1:
        name, operator, wanted = requirements[0]
        if operator == "=":
            return lambda fields: fields.get(name, "") == wanted
        return lambda fields: fields.get(name, "") != wanted
    conditions = tuple((r.field, r.operator == "=", r.value) for r in requirements)

    def match_all(fields: Fields) -> bool:
        get = fields.get
        for name, equal, value in conditions:
            if (get(name, "") == value) is not equal:
                return False
        return True

    return match_all


EVERYTHING = FieldSelector()


def escape(value: str) -> str:
    """A value with the escapes of a selector."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


def _unescape(value: str) -> str:
    if "\\" not in value and "=" not in value:
        return value
    plain: list[str] = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", ",", "="):
                raise BadRequest(f"invalid field selector: invalid escape sequence: \\{escaped}")
            plain.append(escaped)
        elif character == "=":
            raise BadRequest(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            plain.append(character)
    return "".join(plain)


def _terms(text: str) -> list[str]:
    """The parts between commas that are not escaped."""
    terms, start, escaped = [], 0, False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == ",":
            terms.append(text[start:position])
            start = position + 1
    terms.append(text[start:])
    return terms


def _requirement(term: str, text: str) -> Requirement:
    name, equals, value = term.partition("=")
    if not equals:
        raise BadRequest(f"invalid selector: '{text}'; can't understand '{term}'")
    if name.endswith("!"):
        return Requirement(name[:-1], "!=", _unescape(value))
    return Requirement(name, "=", _unescape(value.removeprefix("=")))


@bounded_cache(4096)
def parse(text: str) -> FieldSelector:
    """The selector of a query text; raises ``BadRequest`` with the invalid part."""
    found = [_requirement(term, text) for term in sorted(_terms(text)) if term]
    return FieldSelector(tuple(found)) if found else EVERYTHING
