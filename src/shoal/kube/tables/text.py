"""Texts of cells that many kinds have: ages, labels, selectors, shortened lists, containers.

Any field of an object may be absent: every stored object has a row, and so has the empty object of a bookmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from shoal.base.bounded_cache import bounded_cache
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch

NONE: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"
INVALID: Final = "<invalid>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(duration_s: float) -> str:
    """A duration with two or three digits, as kubectl shows ages. Clocks may differ by less than two seconds."""
    seconds = int(duration_s)
    if seconds < 0:
        return "0s" if seconds >= -1 else INVALID
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    if seconds < 10 * _MINUTE:
        return _two(seconds, _MINUTE, "m", 1, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two(seconds, _HOUR, "h", _MINUTE, "m")
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR}h"
    if seconds < 8 * _DAY:
        return _two(seconds, _DAY, "d", _HOUR, "h")
    if seconds < 2 * _YEAR:
        return f"{seconds // _DAY}d"
    if seconds < 8 * _YEAR:
        return _two(seconds, _YEAR, "y", _DAY, "d")
    return f"{seconds // _YEAR}y"


def _two(seconds: int, large_s: int, large: str, small_s: int, small: str) -> str:
    whole, rest = divmod(seconds, large_s)
    rest //= small_s
    return f"{whole}{large}{rest}{small}" if rest else f"{whole}{large}"


@bounded_cache(4096)
def epoch(text: str) -> float | None:
    """Seconds since 1970 of a stored time; None if it cannot be parsed."""
    try:
        return parse_epoch(text)
    except ValueError:
        return None


def since(time: Any, now: float) -> str:
    """The age of a stored time."""
    if not isinstance(time, str) or not time:
        return UNKNOWN
    moment = epoch(time)
    return INVALID if moment is None else human_duration(now - moment)


def metadata(obj: Obj) -> Obj:
    return obj.get("metadata") or {}


def spec(obj: Obj) -> Obj:
    return obj.get("spec") or {}


def status(obj: Obj) -> Obj:
    return obj.get("status") or {}


def name(obj: Obj) -> str:
    return metadata(obj).get("name") or ""


def age(obj: Obj, now: float) -> str:
    return since(metadata(obj).get("creationTimestamp"), now)


def created_at(obj: Obj) -> str:
    return metadata(obj).get("creationTimestamp") or "0001-01-01T00:00:00Z"


def deleting(obj: Obj) -> bool:
    return bool(metadata(obj).get("deletionTimestamp"))


def condition(holder: Obj, kind: str) -> Obj | None:
    """The first condition of that type in a status."""
    for found in holder.get("conditions") or ():
        if found.get("type") == kind:
            return found  # type: ignore[no-any-return]
    return None


def is_true(holder: Obj, kind: str) -> bool:
    found = condition(holder, kind)
    return found is not None and found.get("status") == "True"


def labels(pairs: Mapping[str, str] | None) -> str:
    """``a=1,b=2``, sorted."""
    if not pairs:
        return NONE
    return ",".join(f"{key}={pairs[key]}" for key in sorted(pairs))


def selector(chosen: Mapping[str, Any] | None) -> str:
    """A label selector in the syntax of ``kubectl -l``; empty if it has no requirement."""
    if not chosen:
        return ""
    parts = [(key, f"{key}={value}") for key, value in (chosen.get("matchLabels") or {}).items()]
    for expression in chosen.get("matchExpressions") or ():
        parts.append((expression.get("key") or "", _expression(expression)))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0]))


def _expression(expression: Mapping[str, Any]) -> str:
    key = expression.get("key") or ""
    values = ",".join(sorted(expression.get("values") or ()))
    match expression.get("operator"):
        case "In":
            return f"{key} in ({values})"
        case "NotIn":
            return f"{key} notin ({values})"
        case "DoesNotExist":
            return f"!{key}"
        case _:
            return key


def containers(template: Obj) -> tuple[str, str]:
    """Names and images of a pod template's containers."""
    found = spec(template).get("containers") or ()
    return ",".join(c.get("name") or "" for c in found), ",".join(c.get("image") or "" for c in found)


def first_few(items: Sequence[str], limit: int = 3) -> str:
    """The first items, and the number of further ones."""
    shown = ",".join(items[:limit])
    return f"{shown} + {len(items) - limit} more..." if len(items) > limit else shown


def load_balancer(holder: Obj) -> str:
    """Addresses of a status' load balancer, sorted."""
    points = (holder.get("loadBalancer") or {}).get("ingress") or ()
    found = {point.get("ip") or point.get("hostname") or "" for point in points}
    return ",".join(sorted(found - {""}))


def joined(items: Iterable[Any] | None, separator: str = ",") -> str:
    return separator.join(str(item) for item in items or ())
