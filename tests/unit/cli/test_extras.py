"""Commands whose packages are not installed say what is missing and what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cli.extras import EXTRAS, MissingExtra, extra_of, require

# An interpreter in which only what the base install has can be imported: the packages of all extras are hidden.
BASE_ONLY = """
import sys
from importlib.abc import MetaPathFinder

from shoal.cli.extras import EXTRAS, _is_in

HIDDEN = {name for names in EXTRAS.values() for name in names}


class Hider(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(each + ".") for each in HIDDEN):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hider())
from shoal.app.main import main

sys.exit(main(sys.argv[1:]))
"""


def base(*argv: str, home: Path | str = "/nonexistent") -> subprocess.CompletedProcess[str]:
    environ = {"SHOAL_HOME": str(home), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", BASE_ONLY, *argv], capture_output=True, text=True, check=False, timeout=60, env=environ
    )


@pytest.mark.parametrize(
    ("argv", "missing", "extra"),
    [
        ("up --dir DIR", ", ".join(EXTRAS["all"]).replace("uvloop, ", ""), "all"),
        ("cluster start --dir DIR", "", "cluster"),
        ("control start --dir DIR", "", "server"),
        ("navigator manager --dir DIR", "", "server"),
        ("navigator edge --join DIR/join.json", "", "agent"),
        ("krane start --dir DIR --join DIR/join.json", "", "agent"),
    ],
)
def test_a_command_without_its_extra_says_what_to_install(argv: str, missing: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "join.json").write_text('{"url": "http://c", "token": "t", "cluster": "c", "region": "r"}')
    words = argv.replace("DIR", str(tmp_path)).split()
    done = base(*words)
    command = " ".join(argv.split(" --")[0].split())
    assert done.returncode == 2, done.stderr
    (line,) = [each for each in done.stderr.splitlines() if not each.startswith("{")]
    assert line.startswith(f"error: `shoal {command}` needs packages that are not installed ({missing}"), line
    assert line.endswith(f"): pip install 'shoal-fleet[{extra}]'")


@pytest.mark.parametrize("argv", ["--help", "version", "krane manifests", "get --help", "completion bash"])
def test_commands_of_the_base_install_run_without_any_extra(argv: str, tmp_path: Path) -> None:
    done = base(*argv.split(), home=tmp_path)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_an_extra_is_found_by_module_and_the_wanted_one_wins() -> None:
    assert extra_of("sqlalchemy.orm", "server") == "server"
    assert extra_of("cryptography.x509", "cluster") == "cluster"
    assert extra_of("cryptography", "") == "agent"
    assert extra_of("hvac", "server") == "vault"
    assert extra_of("google", "gateway") == "gateway"
    assert extra_of("shoal.nothing", "server") == ""


def test_require_names_all_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    require("shoal up", "all")
    monkeypatch.setitem(EXTRAS, "vault", ("no_such_module", "no_such.module", "json"))
    with pytest.raises(MissingExtra, match=r"`shoal up` needs .* \(no_such_module, no_such.module\): pip install"):
        require("shoal up", "vault")
