"""Guarantees of the settings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

from shoal.base.settings import EffectiveSetting, check, effective, json_schema, load, setting
from shoal.errors import ConfigError


class Mode(StrEnum):
    FAST = "fast"
    SAFE = "safe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    burst: int = setting(10, doc="requests at once")
    rate: float = setting(1.5, doc="requests per second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    path: Path = setting(doc="database file")
    mode: Mode = setting(Mode.SAFE, doc="how to write")
    verbose: bool = setting(False, doc="say more")
    hosts: tuple[str, ...] = setting((), doc="names")
    port: int | None = setting(None, doc="where to listen")
    token: str = setting("", doc="the key")
    limits: Limits = setting(Limits(), doc="rates")
    tags: frozenset[str] = setting(frozenset({"b", "a"}), doc="labels")

    def __post_init__(self) -> None:
        if self.limits.burst < 1:
            raise ConfigError(f"limits.burst is {self.limits.burst}: use 1 or more")


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    return file


def test_flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, "{path: /file, mode: fast, hosts: [a, b], limits: {burst: 3, rate: 2}}")
    environ = {"SHOAL_PATH": "/env", "SHOAL_LIMITS__BURST": "4", "SHOAL_VERBOSE": "yes", "SHOAL_UNRELATED": "x"}
    config = load(Config, file=file, environ=environ, flags={"path": "/flag", "mode": None, "limits.rate": 9})
    assert config == Config(
        path=Path("/flag"), mode=Mode.FAST, verbose=True, hosts=("a", "b"), limits=Limits(burst=4, rate=9.0)
    )


def test_lists_in_the_environment_are_separated_by_commas() -> None:
    assert load(Config, environ={"SHOAL_PATH": "/x", "SHOAL_HOSTS": "a, b,"}).hosts == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{path: /x, limits: {burst: many}}", r"limits\.burst is 'many' \(file .*c\.yaml\): use a whole number"),
        ("{path: /x, limits: {burst: 1.5}}", r"limits\.burst is 1\.5 .*: use a whole number"),
        ("{path: /x, limits: {burst: true}}", r"limits\.burst is True .*: use a whole number"),
        ("{path: /x, mode: quick}", r"mode is 'quick' .*: use one of fast, safe"),
        ("{path: /x, verbose: maybe}", r"verbose is 'maybe' .*: use true or false"),
        ("{path: /x, port: no-number}", r"port is 'no-number' .*: use a whole number, or nothing"),
        ("{path: /x, hosts: 3}", r"hosts is 3 .*: use a list, each a text"),
        ("{path: 3}", r"path is 3 .*: use a path"),
        ("{path: /x, mod: fast}", r"mod in file .* is not a setting; did you mean mode\?"),
        ("{path: /x, limits: {zzz: 1}}", r"limits\.zzz in file .* is not a setting; known here: burst, rate"),
        ("{path: /x, limits: 3}", r"limits in file .* must be a mapping"),
        ("{mode: fast}", r"path is not set: database file"),
        ("{path: [", r"not YAML"),
        ("{path: /x, limits: {burst: 0}}", r"limits\.burst is 0: use 1 or more"),
    ],
)
def test_an_error_names_the_key_the_value_the_source_and_the_fix(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(Config, file=written(tmp_path, text))


def test_an_error_in_the_environment_or_a_flag_names_it() -> None:
    with pytest.raises(ConfigError, match=r"port is 'x' \(environment variable SHOAL_PORT\)"):
        load(Config, environ={"SHOAL_PATH": "/x", "SHOAL_PORT": "x"})
    with pytest.raises(ConfigError, match=r"port is 'y' \(flag --port\)"):
        load(Config, flags={"path": "/x", "port": "y"})


def test_the_value_of_a_secret_setting_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"token is \[redacted\]") as error:
        load(Config, file=written(tmp_path, "{path: /x, token: [hunter2]}"))
    assert "hunter2" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        load(Config, file=tmp_path / "none.yaml")


def test_the_schema_describes_every_field_with_its_default_and_requires_nothing_of_a_file() -> None:
    schema = json_schema(Config)
    assert "required" not in schema
    assert schema["properties"]["limits"]["default"] == {"burst": 10, "rate": 1.5}
    assert schema["properties"]["tags"] == {
        "type": "array", "items": {"type": "string"}, "default": ["a", "b"], "description": "labels"
    }  # fmt: skip
    assert schema["additionalProperties"] is False
    assert schema["properties"]["mode"] == {"enum": ["fast", "safe"], "default": "safe", "description": "how to write"}
    assert schema["properties"]["hosts"]["items"] == {"type": "string"}
    assert schema["properties"]["port"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert schema["properties"]["limits"]["properties"]["burst"] == {
        "type": "integer",
        "default": 10,
        "description": "requests at once",
    }


def test_other_variables_stand_between_the_file_and_those_with_the_prefix(tmp_path: Path) -> None:
    file = written(tmp_path, "{path: /file}")
    more = {"path": "DATA", "port": "PORT"}
    assert load(Config, file=file, environ={"DATA": "/data", "PORT": "7"}, variables=more).port == 7
    assert load(Config, file=file, environ={"DATA": "/data"}, variables=more).path == Path("/data")
    both = {"DATA": "/data", "SHOAL_PATH": "/own"}
    assert load(Config, file=file, environ=both, variables=more).path == Path("/own")


def test_defaults_of_the_caller_lose_against_everything(tmp_path: Path) -> None:
    assert load(Config, defaults={"path": Path("/d")}).path == Path("/d")
    assert load(Config, file=written(tmp_path, "{path: /file}"), defaults={"path": "/d"}).path == Path("/file")


def test_a_path_may_begin_with_the_home_of_the_user() -> None:
    assert load(Config, flags={"path": "~/x"}).path == Path.home() / "x"


def test_a_set_is_given_as_a_list(tmp_path: Path) -> None:
    assert load(Config, environ={"SHOAL_PATH": "/x", "SHOAL_TAGS": "c,d"}).tags == frozenset({"c", "d"})
    assert load(Config, file=written(tmp_path, "{path: /x, tags: [e]}")).tags == frozenset({"e"})


def test_what_is_in_force_is_shown_with_its_source_and_without_secrets(tmp_path: Path) -> None:
    file = written(tmp_path, "{mode: fast, token: hunter2, limits: {burst: 3}, hosts: ['https://u:pw@h']}")
    environ = {"SHOAL_LIMITS__BURST": "4", "PORT": "8"}
    found = {each.key: each for each in effective(Config, file=file, environ=environ, variables={"port": "PORT"})}
    assert list(found)[:2] == ["path", "mode"]
    assert found["path"] == EffectiveSetting("path", None, "")
    assert found["mode"] == EffectiveSetting("mode", "fast", f"file {file}")
    assert found["token"].value == "[redacted]"
    assert found["hosts"].value == ["https://u:[redacted]@h"]
    assert found["port"] == EffectiveSetting("port", 8, "environment variable PORT")
    assert found["limits.burst"] == EffectiveSetting("limits.burst", 4, "environment variable SHOAL_LIMITS__BURST")
    assert found["limits.rate"] == EffectiveSetting("limits.rate", 1.5, "default")
    assert found["tags"].value == ["a", "b"]


def test_a_file_is_checked_by_itself(tmp_path: Path) -> None:
    check(Config, written(tmp_path, "{mode: fast}"))
    check(Config, written(tmp_path, ""))
    for text, message in (
        ("{mode: quick}", "use one of fast"),
        ("{limits: {burst: 0}}", "1 or more"),
        ("{x: 1}", "x in"),
    ):
        with pytest.raises(ConfigError, match=message):
            check(Config, written(tmp_path, text))


@pytest.mark.parametrize("text", ["off", "no", "false", "False", "OFF"])
def test_words_of_yaml_for_false_are_text_where_text_is_wanted(tmp_path: Path, text: str) -> None:
    @dataclass(frozen=True)
    class Words:
        mode: str = setting("auto", doc="a word")
        flag: bool = setting(True, doc="true or false")

    file = tmp_path / "settings.yaml"
    file.write_text(f"flag: {text}\nmode: {text if text.lower() in ('off', 'no') else 'x'}\n")
    found = load(Words, file=file, environ={}, prefix="X_", flags={})
    assert found.flag is False
    assert found.mode in ("off", "no", "OFF", "x")
