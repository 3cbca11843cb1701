"""Whether an object is still as it was applied: the fields that differ, and the ones that others have added; pure.

A wanted object is compared as a part of the live one: what the server adds by itself (defaults, status) does not count.
Paths are for people: ``spec.template.spec.containers[app].image``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from shoal.krane.labels import APPLIED, CORRELATION, FIELD_MANAGER_KRANE, FIELD_MANAGER_SCALE, VERSION, is_adopted
from shoal.kube.objects import Obj

Path = tuple[str, ...]

FOREIGN = "shoal.dev/foreign"  # stands in cached objects for their managed fields, of which nothing else is needed

_EMPTY: tuple[Any, ...] = ("", None, [], {}, False, 0)  # what a server may leave out
_OURS = (FIELD_MANAGER_KRANE, FIELD_MANAGER_SCALE)
_NOT_SPEC = ("f:metadata", "f:status", "f:apiVersion", "f:kind")
# A restart by a user is not drift: undoing it would restart everything once more.
_RESTARTED = ("spec", "template", "metadata", "annotations", "kubectl.kubernetes.io/restartedAt")


def fingerprint(want: Obj) -> str:
    """Of everything that is applied but the version and its cause, which change without the object."""
    about = dict(want["metadata"])
    annotations = {
        name: text
        for name, text in (about.get("annotations") or {}).items()
        if name not in (VERSION, APPLIED, CORRELATION)
    }
    about["annotations"] = annotations
    content = orjson.dumps({**want, "metadata": about}, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:32]


def differences(want: Any, live: Any, path: str = "") -> list[str]:
    """Paths of the wanted fields that are otherwise in the live object, or not there."""
    if isinstance(want, dict):
        if not isinstance(live, dict):
            return [] if live is None and want in _EMPTY else [path]
        found: list[str] = []
        for name, value in want.items():
            found += differences(value, live.get(name), f"{path}.{name}" if path else name)
        return found
    if _is_list(want):
        return _list_differences(want, live, path)
    if want == live or (live is None and want in _EMPTY):
        return []
    return [path]


def _list_differences(want: Sequence[Any], live: Any, path: str) -> list[str]:
    if not _is_list(live):
        return [] if live is None and not want else [path]
    names = [_name(item) for item in want]
    if want and all(names):
        by_name = {_name(item): item for item in live}
        found: list[str] = []
        for name, item in zip(names, want, strict=True):
            inner = f"{path}[{name}]"
            found += differences(item, by_name[name], inner) if name in by_name else [inner]
        return found
    if len(want) != len(live):
        return [path]
    pairs = zip(want, live, strict=True)
    return [each for at, (one, other) in enumerate(pairs) for each in differences(one, other, f"{path}[{at}]")]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _name(item: Any) -> str:
    return str(item.get("name") or "") if isinstance(item, dict) else ""


# fields of others


def foreign_fields(obj: Obj) -> list[Path]:
    """The fields below ``spec``, ``data`` and the like that others manage. Subresources do not count: an
    autoscaler's replicas and a controller's status are as they should be."""
    if FOREIGN in obj:
        known: list[Path] = obj[FOREIGN]
        return known
    found: list[Path] = []
    for entry in obj["metadata"].get("managedFields") or ():
        if _is_foreign(entry):
            found += _leaves({k: v for k, v in (entry.get("fieldsV1") or {}).items() if k not in _NOT_SPEC}, ())
    return found


def additions(want: Obj, fields: Sequence[Path]) -> list[str]:
    """Those of the fields that the wanted object does not have, each list item named once. Of an adopted object only a
    part is wanted: the rest is its user's."""
    if is_adopted(want):
        return []
    found: dict[str, None] = {}
    for field in fields:
        missing = _missing(want, field) if field != _RESTARTED else None
        if missing is not None:
            found[shown(missing)] = None
    return list(found)


def shown(path: Path) -> str:
    text = ""
    for part in path:
        if part.startswith("k:"):
            text += f"[{','.join(str(value) for value in orjson.loads(part[2:]).values())}]"
        elif part.startswith("v:"):
            text += f"[{part[2:]}]"
        else:
            text += f".{part}" if text else part
    return text


def taken_over(managed: Sequence[Obj]) -> list[Obj]:
    """The managed fields with everything of others below ``spec`` and the like given to us: the next apply removes
    what it does not name."""
    entries: list[Obj] = []
    taken: Obj = {}
    for entry in managed:
        if not _is_foreign(entry):
            entries.append(entry)
            continue
        fields = entry.get("fieldsV1") or {}
        _merge(taken, {name: inner for name, inner in fields.items() if name not in _NOT_SPEC})
        kept = {name: inner for name, inner in fields.items() if name in _NOT_SPEC}
        if kept:
            entries.append({**entry, "fieldsV1": kept})
    return [
        {**entry, "fieldsV1": _merge(_copied(entry.get("fieldsV1") or {}), taken)} if _is_own_apply(entry) else entry
        for entry in entries
    ]


def owns(managed: Sequence[Obj], path: Path) -> bool:
    """Whether what we applied has this field."""
    for entry in managed:
        fields: Any = entry.get("fieldsV1") if _is_own_apply(entry) else None
        for part in path:
            fields = fields.get(f"f:{part}") if isinstance(fields, Mapping) else None
        if fields is not None:
            return True
    return False


def _is_foreign(entry: Obj) -> bool:
    return entry.get("manager") not in _OURS and not entry.get("subresource")


def _is_own_apply(entry: Obj) -> bool:
    named = (entry.get("manager"), entry.get("operation"), entry.get("subresource") or "")
    return named == (FIELD_MANAGER_KRANE, "Apply", "")


def _leaves(fields: Mapping[str, Any], path: Path) -> Iterator[Path]:
    inner = [(name, below) for name, below in fields.items() if name != "."]
    if not inner and path:
        yield path
    for name, below in inner:
        yield from _leaves(below, (*path, name.removeprefix("f:")))


def _missing(want: Any, path: Path) -> Path | None:
    """The beginning of the path up to the first part that is not in ``want``; None when all of it is."""
    for at, part in enumerate(path):
        if part.startswith("k:"):
            keys = orjson.loads(part[2:])
            items = want if _is_list(want) else ()
            found = [item for item in items if _has_keys(item, keys)]
            if not found:
                return path[: at + 1]
            want = found[0]
        elif part.startswith("v:"):
            if not _is_list(want) or orjson.loads(part[2:]) not in want:
                return path[: at + 1]
            return None
        elif not isinstance(want, dict) or part not in want:
            return path[: at + 1]
        else:
            want = want[part]
    return None


def _has_keys(item: Any, keys: Mapping[str, Any]) -> bool:
    """Whether a list item is the one with these keys; a protocol that is not said is TCP."""
    return isinstance(item, dict) and all(
        item.get(name, "TCP" if name == "protocol" else None) == value for name, value in keys.items()
    )


def _copied(fields: Mapping[str, Any]) -> Obj:
    return {name: _copied(inner) for name, inner in fields.items()}


def _merge(into: Obj, more: Mapping[str, Any]) -> Obj:
    for name, inner in more.items():
        _merge(into.setdefault(name, {}), inner)
    return into
