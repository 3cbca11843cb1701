"""Rules for all commands of ``shoal``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer

from shoal.app.main import COMMANDS
from shoal.cli.printers import Format


def every_parameter() -> list[tuple[str, Any]]:
    """Each parameter of each command and subcommand, with the words before it."""
    found: list[tuple[str, Any]] = []

    def walk(words: str, command: Any) -> None:
        found.extend((words, parameter) for parameter in command.params)
        for name, inner in getattr(command, "commands", {}).items():
            walk(f"{words} {name}", inner)

    for command in COMMANDS:
        module, _, attribute = command.target.partition(":")
        walk(command.name, typer.main.get_command(getattr(import_module(module), attribute)))
    return found


def test_output_is_a_format_everywhere() -> None:
    outputs = [(words, each) for words, each in every_parameter() if {"-o", "--output"} & set(each.opts)]
    assert len(outputs) > 10
    assert [words for words, each in outputs if not isinstance(each.default, Format)] == []
    assert [words for words, each in outputs if set(each.opts) != {"-o", "--output"}] == []
