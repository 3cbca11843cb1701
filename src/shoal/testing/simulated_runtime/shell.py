"""The small part of the shell that simulated containers understand. Pure: no I/O.

    echo TEXT [>&2] · sleep SECONDS · exit CODE · cat · kill -SIGNAL $$ · trap '' TERM · serve PORT · write FILE TEXT

Statements are separated by ``;`` or ``&&``; ``$NAME`` is a variable of the environment. ``serve`` echoes what
connections send; ``write`` writes to a file below a mount. Any other command runs until it is stopped.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_SHELLS = ("sh", "/bin/sh", "bash", "/bin/bash")
_MISSING = ("no-such-program", "/no/such/program")


@dataclass(frozen=True, slots=True)
class Step:
    """One statement."""

    name: str
    args: tuple[str, ...] = ()
    to_stderr: bool = False


class NoSuchProgram(Exception):
    """The command names a program that does not exist."""


def parse(argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps of a command."""
    if not argv:
        return (Step("sleep", ("inf",)),)
    if argv[0] in _MISSING:
        raise NoSuchProgram(argv[0])
    if len(argv) >= 3 and argv[0] in _SHELLS and argv[1] == "-c":
        statements = (each.strip() for each in re.split(r";|&&|\n", argv[2]))
        return tuple(_step(shlex.split(each), env) for each in statements if each)
    return (_step(list(argv), env),)


def _step(words: list[str], env: Mapping[str, str]) -> Step:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return env.get(name, "")

    name, *rest = words
    name = name.rsplit("/", 1)[-1]
    to_stderr = ">&2" in rest
    args = tuple(_VARIABLE.sub(value, each) if each != "$$" else each for each in rest if each != ">&2")
    if name == "true":
        return Step("exit", ("0",))
    if name == "false":
        return Step("exit", ("1",))
    if name in ("echo", "sleep", "exit", "cat", "kill", "trap", "serve", "write", "pwd"):
        return Step(name, args, to_stderr)
    return Step("sleep", ("inf",))
