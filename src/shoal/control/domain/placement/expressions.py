"""Expressions that choose clusters, such as ``cluster.labels["tier"] == "gold" && cluster.capacity.cpu > 16000``.

They see ``cluster`` and ``app`` with declared types, so a wrong field is found when the app is written. One that fails
when it is evaluated (no such label) refuses the cluster and says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shoal.base.bounded_cache import bounded_cache
from shoal.kube import cel
from shoal.kube.cel import types
from shoal.kube.cel.declare import declare

COST_LIMIT: Final = 100_000
MAX_LENGTH: Final = 4096

_TEXT = {"type": "string", "maxLength": 253}
_LABELS = {"type": "object", "additionalProperties": _TEXT, "maxProperties": 100}
_WHOLE = {"type": "integer"}
_CLUSTER = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "region": _TEXT,
        "platform": _TEXT,
        "labels": _LABELS,
        "shards": {"type": "array", "items": _TEXT, "maxItems": 100},
        "capacity": {"type": "object", "properties": {"cpu": _WHOLE, "memory": _WHOLE, "deployments": _WHOLE}},
        "used": {"type": "object", "properties": {"cpu": _WHOLE, "memory": _WHOLE, "deployments": _WHOLE}},
    },
}
_APP = {
    "type": "object",
    "properties": {"name": _TEXT, "project": _TEXT, "environment": _TEXT, "labels": _LABELS},
}


def _environment() -> cel.Env:
    found = {"cluster": declare(_CLUSTER, "Cluster"), "app": declare(_APP, "App")}
    return cel.Env({name: declared.type for name, declared in found.items() if declared is not None})


@bounded_cache(1024)
def _compiled(expression: str) -> cel.Program | str:
    try:
        program = cel.compile(expression, _environment())
    except cel.CompileError as error:
        return str(error)
    if program.type not in (types.BOOL, types.DYN):
        return f"must be true or false, but is {program.type}"
    return program


def expression_faults(expression: str) -> tuple[str, ...]:
    """What is wrong with an expression as it is written."""
    if len(expression) > MAX_LENGTH:
        return (f"may not be more than {MAX_LENGTH} bytes",)
    found = _compiled(expression)
    return (found,) if isinstance(found, str) else ()


def refusal(expression: str, cluster: Mapping[str, Any], app: Mapping[str, Any]) -> str:
    """Why the expression does not take this cluster; empty when it does."""
    program = _compiled(expression)
    if isinstance(program, str):
        return f"the expression is not valid: {program}"
    try:
        value, _ = program.evaluate({"cluster": cluster, "app": app}, COST_LIMIT)
    except cel.EvalError as error:
        return f"the expression has no value here: {error}"
    return "" if value is True else "the expression is false"
