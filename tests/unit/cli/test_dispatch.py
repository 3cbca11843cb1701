"""Finding and running a command: arguments, errors, exit codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from types import ModuleType

import pytest
import typer

from shoal.cli.apps import new_app
from shoal.cli.catalog import Command, render_help
from shoal.cli.dispatch import run
from shoal.errors import ConfigError, NotFound, ShoalError


def _raise(error: BaseException) -> None:
    raise error


class Away(ShoalError):
    exit_code = 3


ERRORS = {
    "away": Away("no response"),
    "pipe": BrokenPipeError(),
    "config": ConfigError("port is 0: use 1"),
    "api": NotFound('pods "x" not found'),
    "interrupt": KeyboardInterrupt(),
    "exit": typer.Exit(7),
    "abort": typer.Abort(),
}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> tuple[Command, ...]:
    module = ModuleType("stand_in")
    made: list[Command] = []
    for name in ("greet", *ERRORS):
        app = new_app(name)
        if name == "greet":
            app.command()(lambda word="hello": typer.echo(word))
        else:
            app.command()(lambda name=name: _raise(ERRORS[name]))
        setattr(module, name, app)
        also = {"aliases": ("hello",), "old_names": ("salute",)} if name == "greet" else {}
        made.append(Command(name=name, summary=f"does {name}", group="All", target=f"stand_in:{name}", **also))
    monkeypatch.setitem(sys.modules, "stand_in", module)
    return tuple(made)


def called(commands: tuple[Command, ...], *argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(argv, commands, version="1.2", out=out, err=err), out.getvalue(), err.getvalue()


def test_a_command_gets_its_arguments(commands: tuple[Command, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert called(commands, "greet", "--word", "hi")[0] == 0
    assert capsys.readouterr().out == "hi\n"


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("config", 2, "error: port is 0: use 1\n"),
        ("api", 1, 'error: pods "x" not found\n'),
        ("exit", 7, ""),
        ("away", 3, "error: no response\n"),
    ],
)
def test_errors_become_one_line_and_a_code(commands: tuple[Command, ...], name: str, code: int, message: str) -> None:
    assert called(commands, name) == (code, "", message)


def test_an_interrupt_ends_with_130(commands: tuple[Command, ...]) -> None:
    assert called(commands, "interrupt")[0] == 130


def test_no_command_prints_help_and_counts_as_wrong_use(commands: tuple[Command, ...]) -> None:
    assert called(commands) == (2, render_help(commands), "")
    assert called(commands, "-h")[0] == 0


def test_an_unknown_command_gets_the_nearest_suggested(commands: tuple[Command, ...]) -> None:
    assert called(commands, "gret") == (2, "", "error: unknown command 'gret'; did you mean `shoal greet`?\n")
    assert "`shoal --help` lists" in called(commands, "zzzzzz")[2]


def test_a_wrong_option_is_shown_with_the_usage_and_in_the_style_of_all_errors(commands: tuple[Command, ...]) -> None:
    code, _, err = called(commands, "greet", "--wrod", "hi")
    assert code == 2
    assert err == (
        "error: no such option: --wrod (Possible options: --word)\n  → `shoal greet --help` shows what can be given\n"
    )


def test_an_aborted_prompt_is_reported_in_the_style_of_all_errors(commands: tuple[Command, ...]) -> None:
    assert called(commands, "abort") == (1, "", "error: aborted\n")


def test_an_alias_is_the_command_and_an_old_name_gives_a_hint(
    commands: tuple[Command, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(commands, "hello") == (0, "", "")
    assert called(commands, "salute") == (0, "", "note: `shoal salute` is now `shoal greet`\n")
    assert capsys.readouterr().out == "hello\nhello\n"
    shown = render_help(commands)
    assert "greet, hello " in shown and "salute" not in shown


def test_a_reader_that_goes_away_ends_a_command_without_a_complaint() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run([sys.executable, "-m", "shoal", "--help"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (141, b"")
