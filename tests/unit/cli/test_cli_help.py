"""The help of every command: as it was, with examples that can be typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tests.unit.cli.golden import GOLDEN, compare, every_command

from shoal.app.main import main
from shoal.cli.examples import EXAMPLES

EVERY = dict(every_command())


def test_the_list_of_commands_is_as_it_was(capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config) -> None:
    assert main(["--help"]) == 0
    compare(GOLDEN / "help" / "shoal.txt", capsys.readouterr().out, pytestconfig)


@pytest.mark.parametrize("words", EVERY)
def test_the_help_of_a_command_is_as_it_was(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*words.split(), "--help"]) == 0
    compare(GOLDEN / "help" / f"{words.replace(' ', '-')}.txt", capsys.readouterr().out, pytestconfig)


def test_no_help_is_kept_of_a_command_that_is_gone() -> None:
    known = {path.stem for path in (GOLDEN / "help").glob("*.txt")} - {"shoal"}
    assert known - {words.replace(" ", "-") for words in EVERY} == set()


def test_every_command_has_an_example() -> None:
    assert [words for words in EVERY if not EXAMPLES.get(words)] == []
    assert [words for words in EXAMPLES if words not in EVERY] == []


def guide_lines() -> set[str]:
    """The commands of the guide, in its blocks and in its table of everyday commands."""
    text = (Path(__file__).parents[3] / "docs" / "guides" / "cli.md").read_text()
    found = re.findall(r"^\$ (?:source <\()?(shoal [^#\n]*?)\)?\s*(?:#.*)?$", text, re.MULTILINE)
    table = text.partition("## Everyday commands\n\n")[2].partition("\n\n")[0]
    found += re.findall(r"`(shoal [^`]*)`", table)
    return {line.replace("\\|", "|").partition(" | ")[0].removesuffix("<Tab>").strip() for line in found}


@pytest.mark.parametrize("line", sorted({line for found in EXAMPLES.values() for _, line in found} | guide_lines()))
def test_an_example_can_be_typed(line: str) -> None:
    line = line.removeprefix("source <(").removesuffix(" | source").removesuffix(")").partition(" || ")[0]
    words = shlex.split(line)
    assert words[0] == "shoal"
    command, rest = EVERY[words[1]], words[2:]
    while rest and (inner := getattr(command, "commands", {})) and not rest[0].startswith("-"):
        command, rest = (inner[rest[0]], rest[1:]) if rest[0] in inner else (inner["app"], rest)
    if rest and (inner := getattr(command, "commands", {})):
        command = inner["list"]
    command.make_context(line, rest)
