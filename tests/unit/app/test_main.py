"""The command line: start-up time, help, errors, state directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from typer import Typer

from shoal import __version__
from shoal.app.commands.doctor import FindingVerdict, examine
from shoal.app.home import directory, shoal_home
from shoal.app.main import COMMANDS, main
from shoal.node.runtime.process import launch
from shoal.node.runtime.process.config import ProcessConfig

HEAVY = {"rich", "asyncio", "pydantic", "cryptography", "msgspec", "orjson", "sqlalchemy", "uvloop"}


def test_help_is_quick_and_loads_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {command.shown} " in shown for command in COMMANDS)
    assert loaded_by("--help") & (HEAVY | {"typer", "ssl", "yaml", "dataclasses", "inspect", "typing", "re"}) == set()


@pytest.mark.parametrize(
    "line", ["get apps -o json", "status", "apply -f examples/hello.yaml", "why web", "query pods", "describe app web"]
)
def test_a_command_that_asks_the_control_plane_loads_little(line: str) -> None:
    assert "shoal.cli.rest" in loaded_by(*line.split())
    reads_yaml = {"orjson"} if line.startswith("apply") else set()
    assert (loaded_by(*line.split()) & HEAVY) - reads_yaml == set()


def loaded_by(*words: str) -> set[str]:
    """The modules that a command imports, beyond those of a bare interpreter."""
    code = f"import sys; before = set(sys.modules); from shoal.app.main import main; main({list(words)!r})"
    shown = "; print(*(set(sys.modules) - before), file=sys.stderr)"
    environment = {**os.environ, "SHOAL_URL": "https://127.0.0.1:1", "SHOAL_TOKEN": "x"}
    environment |= {"SHOAL_NAVIGATOR_URL": "https://127.0.0.1:1"}
    ran = subprocess.run(
        [sys.executable, "-c", code + shown], check=True, capture_output=True, text=True, env=environment
    )  # fmt: skip
    return set(ran.stderr.splitlines()[-1].split())


def test_help_takes_little_longer_than_the_interpreter_alone() -> None:
    def took_s(*words: str) -> float:
        before = time.monotonic()
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - before

    pairs = [(took_s("-c", "pass"), took_s("-m", "shoal", "--help")) for _ in range(7)]
    bare_s, help_s = (min(each) for each in zip(*pairs, strict=True))
    assert help_s < 4 * bare_s, f"help takes {help_s * 1000:.0f} ms, the interpreter {bare_s * 1000:.0f} ms"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_exists_and_explains_itself(command: object, capsys: pytest.CaptureFixture[str]) -> None:
    module, _, attribute = command.target.partition(":")
    assert isinstance(getattr(import_module(module), attribute), Typer)
    assert main([command.name, "--help"]) == 0
    assert f"Usage: shoal {command.name}" in capsys.readouterr().out


def test_version_names_shoal_python_and_sqlite(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    shown = capsys.readouterr().out
    assert __version__ in shown
    assert "sqlite" in shown
    assert main(["version", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"shoal", "python", "sqlite"}
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"shoal {__version__}\n"


def test_without_an_engine_the_docker_runtime_names_the_sockets_and_the_fix(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nobody = tmp_path / "no.sock"
    flags = ["--dir", str(tmp_path / "d"), "--port", "0", "--runtime", "docker", "--docker-socket", str(nobody)]
    assert main(["cluster", "start", *flags]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"error: no Docker socket at {nobody}: start Docker (systemctl start docker)")
    assert "ready" not in shown.out


def test_an_option_that_cannot_be_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["up", "--dir", str(tmp_path), "--regions", "a,B"]) == 2
    assert capsys.readouterr().err == "error: regions has 'B': use up to 32 small letters, digits and dashes\n"


def test_down_with_nothing_running_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["down", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "nothing is running\n"


def test_doctor_reports_every_check_and_fails_when_a_necessary_one_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["doctor", "--dir", str(tmp_path), "-o", "json"])
    names = [check["name"] for check in json.loads(capsys.readouterr().out)]
    assert names == [
        "python", "sqlite", "schema tables", "kubectl", "directory", "port", "open files", "pod isolation",
        "sandboxes", "containers", "disk", "keys", "certificates", "processes", "envoy",
    ]  # fmt: skip
    blocked = tmp_path / "file"
    blocked.touch()
    assert main(["doctor", "--dir", str(blocked / "d")]) == 1
    assert "choose another with --dir" in capsys.readouterr().out


def test_doctor_warns_where_pods_are_not_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def none(config: ProcessConfig) -> str:
        return ""

    monkeypatch.setattr(launch, "find_namespaces", none)
    check = next(check for check in examine(tmp_path) if check.name == "pod isolation")
    assert check.verdict is FindingVerdict.WARNING
    assert "pods can read every file of this user" in check.found
    assert "--runtime docker" in check.fix


def test_doctor_warns_of_a_directory_that_others_can_read(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    check = next(check for check in examine(tmp_path) if check.name == "directory")
    assert check.verdict is FindingVerdict.WARNING
    assert check.fix == f"run: chmod 700 {tmp_path}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_doctor_fails_for_a_directory_of_another_user(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    check = next(check for check in examine(tmp_path) if check.name == "directory")
    assert check.verdict is FindingVerdict.FAILED
    assert check.fix == f"run: chown 0 {tmp_path}"


def test_the_state_directory_is_shoal_home_unless_one_is_given(tmp_path: Path) -> None:
    assert shoal_home({"SHOAL_HOME": "/x"}) == Path("/x")
    assert shoal_home({}) == Path.home() / ".shoal"
    assert directory(None, {"SHOAL_HOME": "/x"}) == Path("/x")
    assert directory(Path("rel")) == Path.cwd() / "rel"
