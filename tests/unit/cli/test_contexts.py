"""Contexts from the environment and from the file, and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli.contexts import Context, Contexts, current_context, read_contexts, save_context, write_contexts
from shoal.errors import ConfigError

ONE = Context("local", "https://127.0.0.1:7400", "secret", "pem")


def test_a_saved_context_is_current_and_its_file_private(tmp_path: Path) -> None:
    save_context(tmp_path, Context("other", "https://b", "t"))
    save_context(tmp_path, ONE)
    assert current_context(tmp_path, environ={}) == ONE
    assert current_context(tmp_path, "other", environ={}).url == "https://b"
    assert (tmp_path / "config.yaml").stat().st_mode & 0o777 == 0o600


def test_the_environment_overrides_the_file_but_not_an_explicit_name(tmp_path: Path) -> None:
    save_context(tmp_path, ONE)
    (tmp_path / "ca.pem").write_text("pem2")
    environ = {"SHOAL_URL": "https://c/", "SHOAL_TOKEN": "t", "SHOAL_CA": str(tmp_path / "ca.pem")}
    assert current_context(tmp_path, environ=environ) == Context("environment", "https://c", "t", "pem2")
    assert current_context(tmp_path, "local", environ=environ) == ONE


@pytest.mark.parametrize(
    ("content", "environ", "text"),
    [
        (None, {}, "start one with `shoal up`"),
        ("contexts: [{name: a}]", {}, "every context needs name, url and token"),
        ("{", {}, "cannot be read"),
        ("contexts: [{name: a, url: u, token: t}]\ncurrent: b", {}, "context 'b' not found in"),
        (None, {"SHOAL_URL": "https://c"}, "SHOAL_TOKEN is not set"),
        (
            "contexts: [{name: a, url: u, token: t}]\ncurrent: a",
            {"SHOAL_TOKEN": "t"},
            "SHOAL_URL is not: set SHOAL_URL",
        ),
        (None, {"SHOAL_URL": "https://c", "SHOAL_TOKEN": "t", "SHOAL_CA": "/nowhere"}, "SHOAL_CA is '/nowhere'"),
    ],
)
def test_an_error_names_the_fix(tmp_path: Path, content: str | None, environ: dict[str, str], text: str) -> None:
    if content is not None:
        (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ConfigError, match=text):
        current_context(tmp_path, environ=environ)


def test_a_named_context_is_used_even_when_a_token_is_set_without_a_url(tmp_path: Path) -> None:
    save_context(tmp_path, ONE)
    assert current_context(tmp_path, "local", environ={"SHOAL_TOKEN": "t"}) == ONE


def test_a_context_that_is_saved_again_keeps_its_defaults(tmp_path: Path) -> None:
    write_contexts(tmp_path, Contexts({"local": Context("local", "u", "t", "", "p", "e")}, "local"))
    save_context(tmp_path, Context("local", "u2", "t2"))
    assert read_contexts(tmp_path).known["local"] == Context("local", "u2", "t2", "", "p", "e")
