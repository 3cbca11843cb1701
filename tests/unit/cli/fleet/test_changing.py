"""``shoal set`` and ``shoal edit``, against a real control plane."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Shoal, a_file, an_app

from shoal.cli.fleet.changing import read_variables
from shoal.errors import ConfigError


@pytest.fixture
def web(shoal: Shoal, project: str, tmp_path: Path) -> str:
    """An app of its own."""
    assert shoal("apply", "-f", a_file(tmp_path, an_app(project, env={"A": "1"}))).code == 0
    return f"{project}/production/web"


def edited(shoal: Shoal, monkeypatch: pytest.MonkeyPatch, code: str, *words: str) -> object:
    """Run `edit` with an editor that is a line of Python; ``text`` is the file's content."""
    script = f"import sys, pathlib; path = pathlib.Path(sys.argv[1]); text = path.read_text(); {code}"
    monkeypatch.setenv("SHOAL_EDITOR", f"{sys.executable} -c {shlex.quote(script)}")
    return shoal("edit", *words)


def test_an_image_and_variables_are_set_and_the_rest_stays(shoal: Shoal, web: str) -> None:
    assert "spec.image: shoal/echo → shop/web:2" in shoal("set", "image", web, "shop/web:2").out
    assert shoal("set", "env", web, "B=two=2", "A-").code == 0
    spec = json.loads(shoal("get", f"app/{web}", "-o", "json").out)["spec"]
    assert (spec["image"], spec["env"], len(spec["topology"])) == ("shop/web:2", {"B": "two=2"}, 2)
    assert shoal("set", "env", web, "B-", "--dry-run").out.startswith(f"app {web}   would be changed")
    assert "existing: B" in shoal("set", "env", web, "NOPE-").err


@pytest.mark.parametrize("word", ["A", "=x", "-", ""])
def test_a_word_that_is_no_variable_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="use NAME=VALUE"):
        read_variables([word])
    assert read_variables(["A=", "B-", "C=x-"]) == ({"A": "", "C": "x-"}, ["B"])


def test_what_an_editor_saved_is_applied(shoal: Shoal, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = edited(shoal, monkeypatch, "path.write_text(text.replace('replicas: 2', 'replicas: 5'))", "app", web)
    assert "spec.topology[0].replicas: 2 → 5" in ran.out
    same = edited(shoal, monkeypatch, "pass", f"app/{web}")
    assert (same.code, same.out, same.err) == (0, "", f"app {web} is unchanged\n")


def test_a_text_that_is_refused_is_kept(shoal: Shoal, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = edited(shoal, monkeypatch, "path.write_text(text.replace('image:', 'imagge:'))", "app", web)
    assert ran.code == 1 and "did you mean image?" in ran.err
    kept = Path(re.search(r"your text is in (\S+):", ran.err)[1])
    assert "imagge" in kept.read_text()
    kept.unlink()


def test_what_others_changed_meanwhile_is_not_overwritten(
    shoal: Shoal, web: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = f"import subprocess; subprocess.run([sys.executable, '-m', 'shoal', 'set', 'image', '{web}', 'x/y:3'], check=True)"
    ran = edited(
        shoal, monkeypatch, f"{other}; path.write_text(text.replace('replicas: 2', 'replicas: 5'))", "app", web
    )
    assert ran.code == 1 and "your text is in" in ran.err
    spec = json.loads(shoal("get", "app", web, "-o", "json").out)["spec"]
    assert (spec["image"], spec["topology"][0]["replicas"]) == ("x/y:3", 2)
    Path(re.search(r"your text is in (\S+):", ran.err)[1]).unlink()


def test_an_editor_that_fails_changes_nothing(shoal: Shoal, web: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ended with code 3: nothing was changed" in edited(shoal, monkeypatch, "sys.exit(3)", "app", web).err
    monkeypatch.setenv("SHOAL_EDITOR", "/nowhere/editor")
    assert "does not start" in shoal("edit", "app", web).err
