"""Functions of expressions: their signatures, and the dispatch of calls whose types are only known at runtime.

A signature is text: ``string.startsWith(string): bool`` is a member function, ``size(list(A)): int`` is not; single
capital letters are type parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from shoal.kube.cel import types
from shoal.kube.cel.types import Type
from shoal.kube.cel.values import type_name

Impl = Callable[..., Any]

_NAMES: Final = {
    each.name: each
    for each in (
        types.BOOL, types.INT, types.UINT, types.DOUBLE, types.STRING, types.BYTES, types.DYN, types.TIMESTAMP,
        types.DURATION, types.TYPE,
    )
} | {
    "url": types.opaque("kubernetes.URL"),
    "ip": types.opaque("net.IP"),
    "cidr": types.opaque("net.CIDR"),
    "quantity": types.opaque("kubernetes.Quantity"),
    "semver": types.opaque("kubernetes.Semver"),
    "format": types.opaque("kubernetes.NamedFormat"),
    "authorizer": types.opaque("kubernetes.authorization.Authorizer"),
    "pathcheck": types.opaque("kubernetes.authorization.PathCheck"),
    "groupcheck": types.opaque("kubernetes.authorization.GroupCheck"),
    "resourcecheck": types.opaque("kubernetes.authorization.ResourceCheck"),
    "decision": types.opaque("kubernetes.authorization.Decision"),
}  # fmt: skip
_RUNTIME: Final = {
    "bool": "bool", "int": "int", "uint": "uint", "double": "double", "string": "string", "bytes": "bytes",
    "null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration",
    "list": "list", "map": "map", "type": "type", "struct": "map",
}  # fmt: skip


class Overload:
    """One signature of a function. ``args`` start with the target of a member function."""

    __slots__ = ("args", "id", "impl", "member", "name", "params", "result", "runtime")

    def __init__(self, id_: str, name: str, member: bool, args: tuple[Type, ...], result: Type, impl: Impl) -> None:
        self.id = id_
        self.name = name
        self.member = member
        self.args = args
        self.result = result
        self.impl = impl
        self.params = tuple(sorted({name for each in (*args, result) for name in _param_names(each)}))
        self.runtime = tuple(_runtime_name(each) for each in args)

    def accepts(self, names: tuple[str, ...]) -> bool:
        """Whether it accepts arguments of these types."""
        if len(names) != len(self.runtime):
            return False
        return all(wanted in ("", given) for wanted, given in zip(self.runtime, names, strict=True))


def _param_names(type_: Type) -> Iterable[str]:
    if type_.kind == "param":
        yield type_.name
    for each in type_.params:
        yield from _param_names(each)


def _runtime_name(type_: Type) -> str:
    """The ``type_name`` of values of a type; empty if it can be anything."""
    if type_.kind in ("dyn", "param"):
        return ""
    return _RUNTIME.get(type_.kind, type_.name)


_WORD = re.compile(r"[A-Za-z_][\w]*")


def read_type(text: str) -> Type:
    found, rest = _read(text)
    if rest:
        raise ValueError(f"not a type: {text}")
    return found


def _read(text: str) -> tuple[Type, str]:
    word = _WORD.match(text)
    if word is None:
        raise ValueError(f"not a type: {text}")
    name, rest = word[0], text[word.end() :]
    params: list[Type] = []
    if rest.startswith("("):
        rest = rest[1:]
        while True:
            each, rest = _read(rest)
            params.append(each)
            mark, rest = rest[0], rest[1:].lstrip()
            if mark == ")":
                break
    if len(name) == 1 and name.isupper():
        return types.param(name), rest
    if name == "list":
        return types.list_of(params[0]), rest
    if name == "map":
        return types.map_of(params[0], params[1]), rest
    if name == "optional":
        return types.optional_of(params[0]), rest
    if name == "type" and params:
        return types.type_type(params[0]), rest
    return _NAMES[name], rest


class Library:
    """Functions by name, each with its overloads in the order they are tried."""

    def __init__(self) -> None:
        self.functions: dict[str, list[Overload]] = {}

    def add(self, id_: str, signature: str, impl: Impl) -> None:
        """Declare one overload. ``|`` before the name keeps a dotted name from being read as a member."""
        head, _, result = signature.rpartition(": ")
        open_at = _argument_list(head)
        name, inner = head[:open_at], head[open_at + 1 : -1]
        args = list(_split(inner))
        member = False
        if name.startswith("|"):
            name = name[1:]
        elif "." in name:
            target, _, name = name.rpartition(".")
            args.insert(0, target)
            member = True
        made = Overload(id_, name, member, tuple(map(read_type, args)), read_type(result), impl)
        self.functions.setdefault(name, []).append(made)


def _argument_list(head: str) -> int:
    """The position of a signature's argument list: its last balanced parenthesis."""
    depth = 0
    for place in range(len(head) - 1, -1, -1):
        depth += (head[place] == ")") - (head[place] == "(")
        if depth == 0:
            return place
    raise ValueError(head)


def _split(text: str) -> Iterable[str]:
    depth, start = 0, 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text.strip():
        yield text[start:].strip()


def no_such_overload(name: str, args: Iterable[Any]) -> str:
    """The message for a call without a matching overload."""
    if not name[0].isalpha():
        return "no such overload"
    return f"no such overload: {name}({', '.join(map(type_name, args))})"
