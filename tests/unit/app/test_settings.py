"""Settings of processes: all read them the same way, and `shoal config` shows the settings of a start."""

from __future__ import annotations

import json
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from shoal.app.main import COMMANDS, main
from shoal.app.settings import CLUSTER, CONTROL, KRANE, PROCESSES, SHARD_WORKER, ProcessKind, read_settings
from shoal.base.settings import effective, json_schema, load
from shoal.errors import ConfigError

KINDS = pytest.mark.parametrize("kind", PROCESSES.values(), ids=PROCESSES)


def command_of(kind: ProcessKind) -> Any:
    """The typer command that starts a process."""
    _, first, second = kind.command.split()
    module, _, attribute = next(each.target for each in COMMANDS if each.name == first).partition(":")
    return typer.main.get_command(getattr(import_module(module), attribute)).commands[second]  # type: ignore[attr-defined]


@KINDS
def test_every_setting_is_explained_and_every_further_variable_is_of_a_setting(kind: ProcessKind) -> None:
    def explained(schema: dict[str, Any], path: str = "") -> list[str]:
        return [
            f"{path}{name}"
            for name, each in schema["properties"].items()
            if not each.get("description") or ("properties" in each and explained(each, f"{path}{name}."))
        ]

    assert explained(json_schema(kind.settings)) == []
    assert set(kind.variables) <= {field.name for field in fields(kind.settings)}


@KINDS
def test_every_process_takes_a_file_and_a_log_level(kind: ProcessKind) -> None:
    options = {option for parameter in command_of(kind).params for option in parameter.opts}
    assert {f"--{kind.file_option}", "--log-level"} <= options


@KINDS
def test_no_flag_has_a_default_or_variable_of_its_own(kind: ProcessKind) -> None:
    """A flag's default would override the file and the variables of the process."""
    given = {
        parameter.name: parameter.default
        for parameter in command_of(kind).params
        if parameter.name not in ("stop_on_eof", "controller", "retention")
        and (parameter.default is not None or (parameter.envvar and parameter.name != "database"))
    }
    assert given == {}


def test_file_variables_and_flags_win_in_this_order(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("{nodes: 2, host: 10.0.0.1, store: 'memory://', flow: {burst: 7}, log_level: debug}")
    environ = {"SHOAL_CLUSTER_HOST": "10.0.0.2", "SHOAL_STORE": "sqlite", "SHOAL_CLUSTER_FLOW__QUEUE_WAIT_S": "3"}
    found = read_settings(CLUSTER, {"nodes": 5, "host": None}, file=file, home=tmp_path, environ=environ)
    assert (found.nodes, found.host, found.store, found.log_level) == (5, "10.0.0.2", "sqlite", "debug")
    assert (found.flow.burst, found.flow.queue_wait_s) == (7.0, 3.0)
    assert found.dir == tmp_path


def test_a_variable_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("shard: a")
    environ = {"SHOAL_SHARD_WORKER_SETTINGS": str(file), "SHARD_CONFIG": "web", "SHARD_CPUS": "2"}
    found = read_settings(SHARD_WORKER, {}, environ=environ)
    assert (found.config, found.shard, found.cpus) == ("web", "a", 2.0)


def test_a_directory_of_the_file_is_used_and_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("dir: here")
    assert read_settings(CONTROL, {}, file=Path("c.yaml"), home=Path("/h"), environ={}).dir == tmp_path / "here"
    assert read_settings(CONTROL, {}, home=Path("/h"), environ={}).dir == Path("/h/control")


def test_a_missing_required_setting_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="join is not set"):
        read_settings(KRANE, {}, home=tmp_path, environ={})


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_config_show_says_where_each_value_comes_from_without_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_EDGE_REQUESTS__PROMETHEUS_TOKEN", "hunter2")
    monkeypatch.setenv("SHOAL_LOG_LEVEL", "debug")
    file = tmp_path / "edge.yaml"
    file.write_text("{port: 9}")
    rows = yaml.safe_load(shown(capsys, "config", "show", "edge", "--config", str(file), "-o", "yaml"))
    found = {row["setting"]: (row["value"], row["from"]) for row in rows}
    assert found["requests.prometheus_token"][0] == "[redacted]"
    assert found["log_level"] == ("debug", "environment variable SHOAL_LOG_LEVEL")
    assert found["port"] == (9, f"file {file}")
    assert found["join"] == (None, "must be given")
    assert "must be given" in shown(capsys, "config", "show", "edge")


@KINDS
def test_config_schema_and_show_work_for_every_process(kind: ProcessKind, capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown(capsys, "config", "schema", kind.name))["additionalProperties"] is False
    keys = [each.key for each in effective(kind.settings)]
    table = shown(capsys, "config", "show", kind.name)
    assert all(key in table for key in keys)


def test_config_check_accepts_valid_settings_and_names_invalid_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "control.yaml"
    file.write_text("{port: 7401, service: {missed_heartbeats: 5}}")
    assert "is valid for `shoal control start`" in shown(capsys, "config", "check", "control", str(file))
    file.write_text("{prot: 7401}")
    assert main(("config", "check", "control", str(file))) == 2
    assert "did you mean port?" in capsys.readouterr().err
    assert main(("config", "check", "contrl", str(file))) == 2
    assert "process 'contrl' not found" in capsys.readouterr().err


def test_the_times_of_elections_come_from_file_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("election: {lease_s: 60, renew_deadline_s: 40, retry_s: 9}")
    environ = {"SHOAL_CLUSTER_ELECTION__RENEW_DEADLINE_S": "30", "SHOAL_CLUSTER_ELECTION__RETRY_S": "8"}
    found = load(
        CLUSTER.settings, file=file, environ=environ, prefix=CLUSTER.prefix,
        flags={"dir": tmp_path, "election.retry_s": 7.0},
    ).election  # fmt: skip
    assert (found.lease_s, found.renew_deadline_s, found.retry_s) == (60, 30.0, 7.0)
    with pytest.raises(ConfigError, match=r"lease_s \(15\) must exceed renew_deadline_s \(20.0\)"):
        load(CLUSTER.settings, flags={"dir": tmp_path, "election.renew_deadline_s": 20.0})
