"""The setup of typer applications: default subcommands."""

from __future__ import annotations

import sys
from io import StringIO
from types import ModuleType

import pytest
import typer

from shoal.cli.apps import new_app
from shoal.cli.catalog import Command
from shoal.cli.dispatch import run


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Command:
    """A group whose subcommand ``app`` may be left out."""
    app = new_app("Change it.", group=True, default="app")

    @app.command("app")
    def of_app(name: str, replicas: int = 1) -> None:
        typer.echo(f"app {name} {replicas}")

    @app.command("pod")
    def of_pod(name: str) -> None:
        typer.echo(f"pod {name}")

    module = ModuleType("stand_in")
    module.app = app  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "stand_in", module)
    return Command(name="scale", summary="", group="", target="stand_in:app")


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("app", "hello", "--replicas", "3"), "app hello 3\n"),
        (("hello", "--replicas", "3"), "app hello 3\n"),
        (("--replicas", "3", "hello"), "app hello 3\n"),
        (("app", "app"), "app app 1\n"),
        (("pod", "hello"), "pod hello\n"),
    ],
)
def test_the_default_subcommand_may_be_left_out(
    scale: Command, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], printed: str
) -> None:
    assert run(["scale", *words], [scale], version="1") == 0
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize(("words", "message"), [(("app",), "missing argument"), (("project", "x"), "unexpected extra")])
def test_a_word_that_could_be_the_kind_or_the_name_is_refused(
    scale: Command, words: tuple[str, ...], message: str
) -> None:
    err = StringIO()
    assert run(["scale", *words], [scale], version="1", err=err) == 2
    assert message in err.getvalue()


def test_the_help_of_the_group_shows_that_the_word_may_be_left_out(
    scale: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["scale", "--help"], [scale], version="1") == 0
    assert "[app] NAME" in capsys.readouterr().out
