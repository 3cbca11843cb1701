"""Decodes YAML request bodies to JSON values as Kubernetes does, and encodes objects as YAML.

Scalars follow YAML 1.1 as Go's decoder reads it: ``yes``, ``on`` and ``y`` are true, ``0777`` is octal, times stay
texts, there are no base-60 numbers. Keys become texts. Only the first document is read. Aliases are expanded into
copies, up to a limit. Invalid YAML raises ``BadRequest``.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import yaml

from shoal.errors import BadRequest, TooLarge
from shoal.kube import jsonutil
from shoal.kube.jsonutil import MAX_DEPTH

MAX_EVENTS = 200_000  # the parser takes about a second for this; JSON of the same size takes a fraction
MAX_ALIASED = 100_000  # values that aliases may add to a document

_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_MAY_BE_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(
    r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))",
    re.ASCII,
)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_PREFIX = "tag:yaml.org,2002:"
_RESOLVED_TAGS = frozenset(_PREFIX + name for name in ("bool", "int", "float", "null", "timestamp"))


class Decoded(NamedTuple):
    """A value and the errors that strict decoding reports (``line 3: key "a" already set in map``)."""

    value: Any
    duplicates: list[str]


def loads(body: bytes) -> Any:
    """The JSON value of a YAML body; of duplicate keys the last one counts."""
    return decode(body).value


def loads_object(body: bytes, faults: list[str] | None = None) -> dict[str, Any]:
    """As ``loads``, for bodies that must be an object; duplicate keys are added to ``faults``."""
    value, duplicates = decode(body)
    if value.__class__ is not dict:
        raise BadRequest(f"the body of the request must be an object, not {jsonutil.kind_of(value)}")
    if faults is not None:
        faults += duplicates
    return value


def decode(body: bytes) -> Decoded:
    """As ``loads``, with the duplicate keys."""
    if body.lstrip()[:1] == b"{":
        try:
            value = jsonutil.loads(body)
        except BadRequest:
            pass  # flow style that is not JSON
        else:
            if not jsonutil.find_duplicate_fields(body, value):
                return Decoded(value, [])
    try:
        builder = _Builder()
        for count, event in enumerate(yaml.parse(body, Loader=yaml.CSafeLoader)):
            if builder.take(event):
                break
            if count > MAX_EVENTS:
                raise TooLarge("error converting YAML to JSON: yaml: the document has too many values: send it as JSON")
        return Decoded(builder.value, builder.duplicates)
    except yaml.YAMLError as error:
        raise BadRequest(f"error converting YAML to JSON: yaml: {_problem(error)}") from None
    except UnicodeError:
        raise BadRequest("error converting YAML to JSON: yaml: the text is not valid UTF-8") from None


def _problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return str(error).splitlines()[0] if str(error) else "cannot be read"


def _fault(text: str) -> BadRequest:
    return BadRequest(f"error converting YAML to JSON: {text}")


def _too_deep() -> BadRequest:
    return _fault(f"yaml: nested deeper than {MAX_DEPTH} levels")


def resolve(text: str) -> Any:
    """The value of a plain scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _MAY_BE_NUMBER:
        return text
    plain = text.replace("_", "") if text[0] != "." else text
    matched = _INTEGER.fullmatch(plain)
    if matched is not None:
        number = _integer(matched)
        if number is not None:
            return number
    return _float(plain, text)


def _integer(matched: re.Match[str]) -> int | None:
    sign, hexadecimal, binary, octal, decimal = matched.groups()
    digits, base = next(pair for pair in ((hexadecimal, 16), (binary, 2), (octal, 8), (decimal, 10)) if pair[0])
    if len(digits) > 64:
        return None
    number = int(digits, base)
    if sign == "-":
        number = -number
    return number if -(2**63) <= number < 2**64 else None


def _float(plain: str, text: str) -> Any:
    if not _FLOAT.fullmatch(plain):
        return text
    number = float(plain)
    if math.isinf(number):
        return text
    return int(number) if number.is_integer() and abs(number) < 2**63 else number


class _Frame:
    """A collection that is being read."""

    __slots__ = ("anchor", "explicit", "key", "line", "size_before", "target")

    def __init__(self, target: dict[str, Any] | list[Any], anchor: str | None, line: int, size_before: int) -> None:
        self.target = target
        self.anchor = anchor
        self.line = line
        self.size_before = size_before
        self.key: Any = _NO_KEY
        self.explicit: set[str] = set()  # explicit keys; keys of a merge are not among them and never override them


_NO_KEY: Any = object()
_MERGE: Any = object()


class _Builder:
    """Builds values from events, without recursion."""

    def __init__(self) -> None:
        self.value: Any = None
        self.duplicates: list[str] = []
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}  # value and how many values it holds
        self._size = 0
        self._aliased = 0

    def take(self, event: Any) -> bool:
        """Handles one event; true once the first document is complete."""
        kind = event.__class__
        if kind is yaml.ScalarEvent:
            self._scalar(event)
        elif kind is yaml.MappingStartEvent:
            self._open({}, event)
        elif kind is yaml.SequenceStartEvent:
            self._open([], event)
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            self._close()
        elif kind is yaml.AliasEvent:
            self._alias(event)
        else:
            return kind is yaml.DocumentEndEvent
        return False

    def _scalar(self, event: Any) -> None:
        value = _scalar_value(event)
        frame = self._stack[-1] if self._stack else None
        if value == "<<" and event.implicit[0] and frame is not None and _wants_key(frame):
            frame.key = _MERGE
            return
        self._size += 1
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._place(value, event.start_mark.line)

    def _open(self, target: dict[str, Any] | list[Any], event: Any) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise _too_deep()
        if self._stack and _wants_key(self._stack[-1]):
            raise _fault(f"yaml: line {event.start_mark.line + 1}: a map or a list cannot be a key")
        self._size += 1
        self._stack.append(_Frame(target, event.anchor, event.start_mark.line, self._size - 1))

    def _close(self) -> None:
        frame = self._stack.pop()
        if frame.anchor:
            self._anchors[frame.anchor] = (frame.target, self._size - frame.size_before)
        self._place(frame.target, frame.line)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise _fault(f"yaml: unknown anchor '{event.anchor}' referenced")
        value, size = self._anchors[event.anchor]
        self._aliased += size
        self._size += size
        if self._aliased > MAX_ALIASED:
            raise _fault("yaml: document contains excessive aliasing")
        if isinstance(value, dict | list):
            if jsonutil.is_deeper_than(value, MAX_DEPTH - len(self._stack)):
                raise _too_deep()
            value = jsonutil.deep_copy(value)
        self._place(value, event.start_mark.line)

    def _place(self, value: Any, line: int) -> None:
        if not self._stack:
            self.value = value
            return
        frame = self._stack[-1]
        target = frame.target
        if isinstance(target, list):
            target.append(_checked(value))
        elif frame.key is _NO_KEY:
            frame.key = _key_text(value, line)
        elif frame.key is _MERGE:
            _merge(target, frame.explicit, value)
            frame.key = _NO_KEY
        else:
            key = frame.key
            if key in frame.explicit:
                self.duplicates.append(f'line {line + 1}: key "{key}" already set in map')
            frame.explicit.add(key)
            target[key] = _checked(value)
            frame.key = _NO_KEY


def _wants_key(frame: _Frame) -> bool:
    return isinstance(frame.target, dict) and frame.key is _NO_KEY


def _scalar_value(event: Any) -> Any:
    tag = event.tag
    if event.implicit[0] and (tag is None or tag == "!"):
        return resolve(event.value) if tag is None else event.value
    return resolve(event.value) if tag in _RESOLVED_TAGS else event.value


def _checked(value: Any) -> Any:
    if value.__class__ is float and not math.isfinite(value):
        raise _fault(f"json: unsupported value: {'NaN' if math.isnan(value) else 'Inf'}")
    return value


def _key_text(value: Any, line: int) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise _fault(f"yaml: line {line + 1}: unsupported map key")


def _merge(target: dict[str, Any], explicit: set[str], source: Any) -> None:
    sources = source if isinstance(source, list) else [source]
    for each in sources:
        if not isinstance(each, dict):
            raise _fault("yaml: map merge requires map or sequence of maps as the value")
        for key, value in each.items():
            if key not in explicit:
                target.setdefault(key, value)


class _Dumper(yaml.CSafeDumper):
    """Block style without anchors; texts that could be read as something else are quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif resolve(text) is not text:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dumps(value: Any) -> bytes:
    """A JSON value as YAML, keys in order, ending with a newline."""
    text: bytes = yaml.dump(
        value,
        Dumper=_Dumper,
        encoding="utf-8",
        allow_unicode=True,
        default_flow_style=False,
        sort_keys=True,
        width=2**20,
    )
    return text.removesuffix(b"...\n")
