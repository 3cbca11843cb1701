"""The systemd units: systemd accepts them, Shoal accepts their command lines, and they keep their keys to themselves."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from arch_source import ROOT

from shoal.app.main import COMMANDS

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
PROGRAM = "/opt/shoal/bin/shoal"
EXPOSURE = 20  # tenths, as `systemd-analyze security` counts; a unit without any protection has 96


def settings(unit: Path) -> list[tuple[str, str]]:
    pairs = re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE)
    assert pairs
    return pairs


def values(unit: Path, name: str) -> list[str]:
    return [value for key, value in settings(unit) if key == name]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_line_of_a_unit_is_one_that_shoal_takes(unit: Path) -> None:
    (line,) = values(unit, "ExecStart")
    program, *words = shlex.split(
        line.replace("%d", "/run/credentials").replace("${SHOAL_RELAY_URL}", "https://c:7400")
    )
    assert (
        program == PROGRAM and "%" not in line.replace("%d", "") and "$" not in line.replace("${SHOAL_RELAY_URL}", "")
    )
    (command,) = [each for each in COMMANDS if each.name == words[0]]
    module, _, attribute = command.target.partition(":")
    group: Any = typer.main.get_command(getattr(import_module(module), attribute))
    context = group.commands[words[1]].make_context(words[1], words[2:])  # raises for options that there are not
    assert int(context.params["port"]) > 1024
    assert str(context.params.get("dir") or "/var/lib/shoal/").startswith("/var/lib/shoal/")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_secrets_of_a_unit_are_credentials_and_never_in_it(unit: Path) -> None:
    (line,) = values(unit, "ExecStart")
    given = {each.partition(":")[0] for each in values(unit, "LoadCredential")}
    assert set(re.findall(r"%d/([\w-]+)", line)) == given
    assert not values(unit, "Environment")
    assert ("DynamicUser", "yes") in settings(unit) or ("User", "shoal") in settings(unit)
    assert values(unit, "StateDirectory")[0].startswith("shoal/")


def test_a_command_line_that_shoal_does_not_take_is_noticed(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.service"
    wrong.write_text((ROOT / "deploy" / "systemd" / "shoal-krane.service").read_text().replace("--join", "--joined"))
    with pytest.raises(typer.TyperException, match="--joined"):
        test_the_command_line_of_a_unit_is_one_that_shoal_takes(wrong)


def test_systemd_accepts_the_units_and_finds_little_exposed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    assert len(UNITS) == 5
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, "/bin/true"))
    copies = [str(tmp_path / unit.name) for unit in UNITS]
    checked = subprocess.run([analyze, "verify", "--man=no", *copies], capture_output=True, text=True, check=False)
    about_ours = [line for line in checked.stderr.splitlines() if str(tmp_path) in line or "shoal-" in line]
    assert checked.returncode == 0 and not about_ours, checked.stderr
    for copy in copies:
        command = [analyze, "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager", copy]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "--offline" in done.stderr:
            pytest.skip("this systemd-analyze has no --offline")
        assert done.returncode == 0, done.stdout.splitlines()[-1]
