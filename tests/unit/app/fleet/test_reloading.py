"""Settings of the fleet's processes, read again at SIGHUP."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from shoal.app.fleet.config import DYNAMIC, ControlOptions
from shoal.app.fleet.reloading import Reloading, merge, names_of
from shoal.base import logs
from shoal.base.settings import load
from shoal.control.service.config import ServiceConfig


def control_options(path: Path, folder: Path) -> ControlOptions:
    return load(ControlOptions, file=path, flags={"dir": folder})


def test_dynamic_settings_are_applied_and_other_changes_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text("host: 127.0.0.1\nservice: {digest_every_s: 60}\n")
    first = control_options(path, tmp_path)
    reloading = Reloading(lambda: control_options(path, tmp_path), first, DYNAMIC)
    seen: list[ControlOptions] = []
    reloading.apply = seen.append
    path.write_text("host: 0.0.0.0\nlog_level: debug\nservice: {digest_every_s: 20, guard_s: 0.2}\n")
    try:
        reloading()
    finally:
        logs.configure()
    expected = replace(first, log_level="debug", service=replace(first.service, digest_every_s=20.0))
    assert seen == [expected] and reloading.current == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("service: {digest_every_s: often}", ["service.digest_every_s", "'often'", "use a number"]),
        ("service: {digest_every_s: 0}", ["digest_every_s", "0", "use more than 0"]),
        ("log_level: loud", ["log_level", "'loud'", "choose from"]),
        ("serivce: {}", ["serivce", "did you mean service?"]),
        ("service: [", ["not YAML"]),
    ],
)
def test_an_invalid_file_is_refused_with_key_value_and_fix_and_nothing_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: list[str]
) -> None:
    path = tmp_path / "control.yaml"
    path.write_text("service: {batch: 50}\n")
    first = control_options(path, tmp_path)
    reloading = Reloading(lambda: control_options(path, tmp_path), first, DYNAMIC)
    reloading.apply = lambda _options: pytest.fail("nothing may change")
    path.write_text(content)
    reloading()
    assert reloading.current is first
    said = capsys.readouterr().err
    assert all(word in json.loads(said)["reason"] for word in words), said


def test_every_dynamic_setting_exists() -> None:
    names = names_of(ControlOptions(dir=Path("/x")))
    assert set(names) >= DYNAMIC
    from shoal.app.fleet.agent import DYNAMIC as OF_AGENTS
    from shoal.app.fleet.agent import KraneSettings

    assert set(names_of(KraneSettings(join=Path("j")))) >= OF_AGENTS


def test_merging_takes_the_named_settings_only() -> None:
    @dataclass(frozen=True)
    class Settings:
        a: int = 1
        service: ServiceConfig = field(default_factory=ServiceConfig)

    after = Settings(a=2, service=ServiceConfig(batch=5, guard_s=0.1))
    assert merge(Settings(), after, ["service.batch"]) == Settings(service=ServiceConfig(batch=5))
