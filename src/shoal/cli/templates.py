"""Templates of ``-o jsonpath=``, as kubectl has them: text, ``{PATH}``, ``{"quoted"}`` and ``{range PATH}…{end}``.

Several values of a path are separated by a space; texts are printed as they are, other values as JSON. A path that
leads nowhere prints nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from shoal.errors import ConfigError
from shoal.kube import jsonpath

Template = Callable[[Any], str]

_EXPRESSION = re.compile(r"""\{((?:[^{}"']|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')*)\}""")
_ESCAPES = {r"\n": "\n", r"\t": "\t"}


def fields_of(template: str) -> Template:
    """A function from a value to the text that the template makes of it; raises ConfigError."""
    try:
        pieces = _pieces(template if "{" in template else f"{{{template}}}")
        parts, left = _parts(pieces, nested=False)
    except ValueError as error:
        raise ConfigError(f"output is 'jsonpath={template}': {error}; use for example {{.metadata.name}}") from None
    assert not left
    return lambda value: _text(parts, value)


def _pieces(template: str) -> list[tuple[str, str]]:
    """Text and expressions, in order."""
    found: list[tuple[str, str]] = []
    position = 0
    for matched in _EXPRESSION.finditer(template):
        found.append(("text", template[position : matched.start()]))
        found.append(("expression", matched[1].strip()))
        position = matched.end()
    found.append(("text", template[position:]))
    if any("{" in text or "}" in text for what, text in found if what == "text"):
        raise ValueError("a brace is not closed")
    return [(what, text) for what, text in found if text or what == "expression"]


def _parts(pieces: Sequence[tuple[str, str]], *, nested: bool) -> tuple[list[Template], Sequence[tuple[str, str]]]:
    """What the pieces print, up to the end of a range; and the pieces after it."""
    parts: list[Template] = []
    while pieces:
        (what, text), pieces = pieces[0], pieces[1:]
        if what == "text":
            parts.append(_literal(text))
        elif text == "end":
            if not nested:
                raise ValueError("{end} without {range}")
            return parts, pieces
        elif text.startswith("range "):
            inner, pieces = _parts(pieces, nested=True)
            parts.append(_each(jsonpath.compile(text.removeprefix("range ").strip()), inner))
        elif text[:1] in ("'", '"'):
            parts.append(_literal(_unquoted(text)))
        else:
            parts.append(_values(jsonpath.compile(_rooted(text))))
    if nested:
        raise ValueError("{range} without {end}")
    return parts, pieces


def _rooted(path: str) -> str:
    return path if path.startswith((".", "$", "[")) else f".{path}"


def _literal(text: str) -> Template:
    return lambda _: text


def _values(find: jsonpath.Finder) -> Template:
    return lambda value: " ".join(_shown(each) for each in find(value))


def _each(find: jsonpath.Finder, inner: Sequence[Template]) -> Template:
    return lambda value: "".join(_text(inner, each) for each in find(value))


def _text(parts: Sequence[Template], value: Any) -> str:
    return "".join(part(value) for part in parts)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _unquoted(text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise ValueError(f"{text} is not closed")
    made = text[1:-1]
    for escape, meant in _ESCAPES.items():
        made = made.replace(escape, meant)
    return made
