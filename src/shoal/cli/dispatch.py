"""Runs one command: finds it in the catalog, loads its module, and turns errors into lines and an exit code.

Every error is ``error: MESSAGE``, with a line ``  FIELD: MESSAGE`` for each wrong field and ``  → FIX`` for what mends
it, those of typer about wrong options too. Exit codes (docs/guides/cli.md): 0 success, 1 failure, 2 wrong use, 3 no
answer from the server, 130 interrupted, 141 the reader of the output has gone.
"""

from __future__ import annotations

import sys

from shoal.cli.catalog import Command, render_help, unknown_command

TYPE_CHECKING = False
if TYPE_CHECKING:  # help is printed before anything else is imported
    from collections.abc import Sequence
    from typing import Any, TextIO

OK, FAILED, WRONG_USE, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141


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
    try:
        code = _run(argv, commands, version, out, err)
        out.flush()
        return code
    except BrokenPipeError:
        _drop_output()
        return NO_READER
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        from shoal.errors import ConfigError, ShoalError

        if not isinstance(error, ShoalError):
            raise
        err.write(f"error: {error}\n")
        if correlation := getattr(error, "correlation", ""):
            err.write(f"correlation id: {correlation}\n")
        return WRONG_USE if isinstance(error, ConfigError) else int(getattr(error, "exit_code", FAILED))


def _call_or_tell(command: Command, arguments: Sequence[str], err: TextIO) -> int:
    """Run the command. If a package is missing because an extra is not installed, the error names the extra."""
    try:
        return _call(command, arguments, err)
    except ModuleNotFoundError as error:
        from shoal.cli.extras import MissingExtra, extra_of

        missing = error.name or ""
        word = next((each for each in arguments if not each.startswith("-")), "")
        if extra := extra_of(missing, dict(command.extra_of).get(word, command.extra)):
            raise MissingExtra(f"shoal {command.name} {word}".rstrip(), extra, (missing,)) from error
        raise


def _run(argv: Sequence[str], commands: Sequence[Command], version: str, out: TextIO, err: TextIO) -> int:
    if not argv or argv[0] in ("--help", "-h", "help"):
        out.write(render_help(commands))
        return OK if argv else WRONG_USE
    if argv[0] == "--version":
        out.write(f"shoal {version}\n")
        return OK
    found = next((command for command in commands if argv[0] in command.names), None)
    if found is None:
        err.write(f"error: {unknown_command(argv[0], commands)}\n")
        return WRONG_USE
    if argv[0] in found.old_names:
        err.write(f"note: `shoal {argv[0]}` is now `shoal {found.name}`\n")
    return _call_or_tell(found, argv[1:], err)


def _call(command: Command, arguments: Sequence[str], err: TextIO) -> int:
    from importlib import import_module

    module, _, attribute = command.target.partition(":")
    application = getattr(import_module(module), attribute)
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


def _drop_output() -> None:
    """What is left of the output goes nowhere: the interpreter would complain about the broken pipe at its end."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _usage_text(error: Any) -> str:
    """What typer found wrong, in the style of our own errors; or the help of a group that was named alone."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        return f"{message}\n"
    text = f"error: {message[:1].lower()}{message[1:].rstrip('.')}\n"
    return f"{text}  → `{context.command_path} --help` shows what can be given\n" if context is not None else text
