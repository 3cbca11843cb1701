"""The Common Expression Language, as Kubernetes uses it: parse, check, bound the cost, evaluate.

    program = compile("self.replicas <= 10", Env.of_schema(schema))
    value, cost = program.evaluate({"self": obj})

Text goes through ``parser`` (with ``lexer`` and ``macros``), ``checker``, ``cost`` and ``evaluator``; ``library`` has
the functions, ``declare`` turns schemas into types. Everything is pure: the caller passes clock and authorizer.
"""

from __future__ import annotations

from shoal.kube.cel.environment import PER_CALL_LIMIT, Env, Program, compile
from shoal.kube.cel.errors import CelError, CompileError, CostExceeded, EvalError, Interrupted, ProgramError

__all__ = [
    "PER_CALL_LIMIT",
    "CelError",
    "CompileError",
    "CostExceeded",
    "Env",
    "EvalError",
    "Interrupted",
    "Program",
    "ProgramError",
    "compile",
]
