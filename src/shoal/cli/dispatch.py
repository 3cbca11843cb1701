"""Runs one command: finds it in the catalog, loads its module, and turns errors into a line and an exit code.

Exit codes: 0 done, 1 it failed, 2 the command or a setting is wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TextIO

from shoal.cli.catalog import Command, render_help, unknown_command
from shoal.errors import ConfigError, ShoalError

OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


def run(
    argv: Sequence[str],
    commands: Sequence[Command],
    *,
    version: str,
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Run ``shoal`` with these arguments and return its exit code."""
    out, err = out or sys.stdout, err or sys.stderr
    if not argv or argv[0] in ("--help", "-h", "help"):
        out.write(render_help(commands))
        return OK if argv else WRONG_USE
    if argv[0] == "--version":
        out.write(f"shoal {version}\n")
        return OK
    found = next((command for command in commands if command.name == argv[0]), None)
    if found is None:
        err.write(f"error: {unknown_command(argv[0], commands)}\n")
        return WRONG_USE
    try:
        return _call(found, argv[1:])
    except ConfigError as error:
        err.write(f"error: {error}\n")
        return WRONG_USE
    except ShoalError as error:
        err.write(f"error: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _call(command: Command, arguments: Sequence[str]) -> int:
    module, _, attribute = command.target.partition(":")
    application: Any = getattr(import_module(module), attribute)
    try:
        result = application(args=list(arguments), prog_name=f"shoal {command.name}")
    except SystemExit as stop:  # how typer ends, also after --help
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else OK
    return result if isinstance(result, int) else OK
