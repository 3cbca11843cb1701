"""Runs one command: finds it in the catalog, loads its module, and turns errors into a line and an exit code.

Every error is written as ``error: MESSAGE``, those of typer about wrong options too; typer itself writes ``Error:``.
Exit codes: 0 success, 1 failure, 2 invalid command or setting, 130 interrupted.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TextIO

from shoal.cli.catalog import Command, render_help, unknown_command
from shoal.cli.extras import MissingExtra, extra_of
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
        return _call_or_tell(found, argv[1:], err)
    except ConfigError as error:
        err.write(f"error: {error}\n")
        return WRONG_USE
    except ShoalError as error:
        err.write(f"error: {error}\n")
        if correlation := getattr(error, "correlation", ""):
            err.write(f"correlation id: {correlation}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _call_or_tell(command: Command, arguments: Sequence[str], err: TextIO) -> int:
    """Run the command. If a package is missing because an extra is not installed, the error names the extra."""
    try:
        return _call(command, arguments, err)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if extra := extra_of(missing, command.extra):
            word = next((each for each in arguments if not each.startswith("-")), "")
            raise MissingExtra(f"shoal {command.name} {word}".rstrip(), extra, (missing,)) from error
        raise


def _call(command: Command, arguments: Sequence[str], err: TextIO) -> int:
    module, _, attribute = command.target.partition(":")
    application: Any = getattr(import_module(module), attribute)
    import typer  # the application has loaded it

    try:
        result = application(args=list(arguments), prog_name=f"shoal {command.name}", standalone_mode=False)
    except typer.TyperException as error:
        err.write(_usage_text(error))
        return error.exit_code
    except typer.Abort:
        err.write("error: aborted\n")
        return FAILED
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILED if stop.code else OK
    return result if isinstance(result, int) else OK


def _usage_text(error: Any) -> str:
    """The usage line, the hint and the message, as typer shows them, in the style of our own errors."""
    shown = io.StringIO()
    error.show(shown)
    head, mark, message = shown.getvalue().rpartition("Error: ")
    return f"{head}error: {message}" if mark and (not head or head.endswith("\n")) else shown.getvalue()
