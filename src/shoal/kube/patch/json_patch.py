"""JSON Patch (RFC 6902), with the limits and errors of the Kubernetes API server.

A patch that is not a list of operations is a ``BadRequest``; an operation that fails, a ``test`` included, is
``Invalid``. The document passed in is not changed: containers are copied when an operation first changes them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from shoal.errors import BadRequest, Invalid, TooLarge
from shoal.kube.jsonutil import MAX_DEPTH, dumps, is_deeper_than, loads

MAX_OPERATIONS = 10_000
MAX_COPY_BYTES = 3 * 1024 * 1024  # of all copy operations of one patch together

_REJECTED = "the server rejected our request due to an error in our request"
_MISSING = object()


class _Failed(Exception):
    """An operation that does not apply."""


def apply(doc: Any, operations: Any) -> Any:
    """``doc`` after all operations, in order."""
    _check_shape(operations)
    patched = _Document(doc)
    for operation in operations:
        try:
            patched.carry_out(operation)
        except _Failed as failure:
            _reject(str(failure))
    if patched.grew and is_deeper_than(patched.root, MAX_DEPTH):
        _reject(f"the patched object is nested deeper than {MAX_DEPTH} levels")
    return patched.root


def _check_shape(operations: Any) -> None:
    if not isinstance(operations, list) or not all(isinstance(operation, dict) for operation in operations):
        raise BadRequest("error decoding patch: a JSON patch must be a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}",
        )
    for operation in operations:
        for member in ("op", "path", "from"):
            value = operation.get(member)
            if value is not None and not isinstance(value, str):
                raise BadRequest(f"error decoding patch: {member} must be a string")


def _reject(detail: str) -> NoReturn:
    raise Invalid(_REJECTED, causes=[{"reason": "UnexpectedServerResponse", "message": detail}]) from None


class _Document:
    """The document that is being changed."""

    def __init__(self, root: Any) -> None:
        self.root = root
        # Containers created here, which may be changed; kept alive, because the id of a dead object can be reused.
        self._own: dict[int, Any] = {}
        self._copied_bytes = 0
        self.grew = False  # a container was added, so the nesting may be deeper now

    def carry_out(self, operation: dict[str, Any]) -> None:
        kind = operation.get("op")
        path = operation.get("path")
        if path is None:
            raise _Failed(f"{kind} operation failed to decode path: missing value")
        if kind == "test":
            self._test(path, operation.get("value"))
        elif kind == "add":
            self._add(path, operation.get("value"), "add")
        elif kind == "replace":
            self._replace(path, operation.get("value"))
        elif kind == "remove":
            self._remove(path, "remove")
        elif kind == "move" or kind == "copy":
            self._transfer(kind, operation.get("from"), path)
        else:
            raise _Failed(f"Unexpected kind: {kind}")

    def _test(self, path: str, value: Any) -> None:
        if path:
            parent, key = self._locate(path, "test", change=False)
            found = _get(parent, key)
        else:
            found = self.root
        if not same(None if found is _MISSING else found, value):
            raise _Failed(f"testing value {path} failed: test failed")

    def _add(self, path: str, value: Any, kind: str) -> None:
        parent, key = self._locate(path, kind, change=True)
        self.grew |= isinstance(value, dict | list)
        if isinstance(parent, dict):
            parent[key] = value
        elif key == "-":
            parent.append(value)
        else:
            parent.insert(_index(key, len(parent) + 1), value)

    def _replace(self, path: str, value: Any) -> None:
        if not path:
            if not isinstance(value, dict | list):
                raise _Failed("replace operation value must be object or array")
            self.root = value
            return
        parent, key = self._locate(path, "replace", change=True)
        self.grew |= isinstance(value, dict | list)
        if isinstance(parent, dict):
            parent[key] = value  # even if it was absent, as in Kubernetes
        else:
            parent[_index(key, len(parent))] = value

    def _remove(self, path: str, kind: str) -> Any:
        parent, key = self._locate(path, kind, change=True)
        if isinstance(parent, list):
            return parent.pop(_index(key, len(parent)))
        if key not in parent:
            raise _Failed(f"error in {kind} for path: '{path}': Unable to remove nonexistent key: {key}: missing value")
        return parent.pop(key)

    def _transfer(self, kind: str, source: str | None, path: str) -> None:
        if source is None:
            raise _Failed(f"{kind} operation failed to decode from: operation, missing from field: missing value")
        if kind == "move":
            self._add(path, self._remove(source, kind), kind)
            return
        parent, key = self._locate(source, kind, change=False)
        value = _get(parent, key)
        copied, size = _copy(None if value is _MISSING else value)
        self._copied_bytes += size
        if self._copied_bytes > MAX_COPY_BYTES:
            raise _Failed(
                f"Unable to complete the copy, the accumulated size increase of copy is {self._copied_bytes}, "
                f"exceeding the limit {MAX_COPY_BYTES}"
            )
        self._add(path, copied, kind)

    def _locate(self, path: str, kind: str, *, change: bool) -> tuple[Any, str]:
        """The container and key at the end of a path; with ``change``, all containers on the path are copied for
        changes."""
        parts = path.split("/")
        if len(parts) < 2 or parts[0]:
            raise _Failed(f'{kind} operation does not apply: doc is missing path: "{path}": missing value')
        container = self.root
        if change:
            container = self.root = self._changeable(container)
        for part in parts[1:-1]:
            key = _unescape(part)
            inner = _get(container, key)
            if not isinstance(inner, dict | list):
                raise _Failed(f'{kind} operation does not apply: doc is missing path: "{path}": missing value')
            if change:
                inner = self._changeable(inner)
                if isinstance(container, dict):
                    container[key] = inner
                else:
                    container[_index(key, len(container))] = inner
            container = inner
        return container, _unescape(parts[-1])

    def _changeable(self, container: Any) -> Any:
        if id(container) in self._own:
            return container
        mine = container.copy()
        self._own[id(mine)] = mine
        return mine


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def _get(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        return container.get(key, _MISSING)
    return container[_index(key, len(container))]


def _index(key: str, length: int) -> int:
    """A position in a list; negative ones count from the end, as in Kubernetes."""
    digits = key[1:] if key[:1] in ("-", "+") else key
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise _Failed(f"value was not a proper array index: '{key}'")
    index = int(key)
    if not -length <= index < length:
        raise _Failed(f"Unable to access invalid index: {index}: invalid index referenced")
    return index if index >= 0 else index + length


def _copy(value: Any) -> tuple[Any, int]:
    """A copy and the size of its JSON."""
    try:
        text = dumps(value)
        return loads(text), len(text)
    except (TypeError, BadRequest):
        raise _Failed("error while performing deep copy: the value is nested too deep") from None


def same(left: Any, right: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)
