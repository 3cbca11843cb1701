"""Settings of the fleet's processes: read again at SIGHUP, and credentials that a second control plane takes over."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shoal.app.fleet.config import DYNAMIC, ControlOptions, checked_config, opened_config, opened_relay
from shoal.app.fleet.credentials import export_credentials, take_over
from shoal.app.fleet.relay import read_token_file
from shoal.app.fleet.reloading import Reloading, merge, names_of
from shoal.app.pki import Pki
from shoal.base import logs
from shoal.base.settings import load
from shoal.control.service.config import ServiceConfig
from shoal.errors import ConfigError


def control_options(path: Path, folder: Path) -> ControlOptions:
    return load(ControlOptions, file=path, flags={"dir": folder})


def test_what_may_change_is_taken_over_and_the_rest_is_named(tmp_path: Path) -> None:
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
def test_a_file_that_is_wrong_is_refused_with_key_value_and_fix_and_nothing_changes(
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


# credentials


def a_control_plane(folder: Path, *, master: str = "a-key\n") -> Path:
    Pki(folder / "pki", now=datetime.now(UTC)).ensure_server(["localhost"])
    (folder / "admin.token").write_text("shoal_user_x\n")
    (folder / "master.key").write_text(master)
    return folder


def test_a_second_control_plane_has_the_ca_the_token_and_the_key_of_the_first(tmp_path: Path) -> None:
    first, file = a_control_plane(tmp_path / "first"), tmp_path / "credentials.json"
    export_credentials(first, file)
    assert file.stat().st_mode & 0o777 == 0o600
    for source, name in ((file, "second"), (first, "third")):
        options = ControlOptions(dir=tmp_path / name, credentials=source, port=0)
        for _ in range(2):  # at every start
            with opened_config(options) as config:
                Pki(config.pki_dir, now=datetime.now(UTC)).ensure_server(["other"])
                assert (config.pki_dir / "ca.crt").read_bytes() == (first / "pki" / "ca.crt").read_bytes()
                assert config.admin_token_path.read_text() == "shoal_user_x\n"
                assert (config.dir / "master.key").read_text() == "a-key\n"
                assert config.admin_token_path.stat().st_mode & 0o077 == 0


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    export_credentials(a_control_plane(tmp_path / "first"), file)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=r"other users can read it; run chmod 600"):
        take_over(file, tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_what_is_of_another_fleet_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    export_credentials(a_control_plane(tmp_path / "first"), file)
    other = a_control_plane(tmp_path / "other")
    with pytest.raises(ConfigError, match="keys of another control plane"):
        take_over(file, other)
    second = tmp_path / "second"
    take_over(file, second)
    (second / "master.key").write_text("newer\na-key\n")
    with pytest.raises(ConfigError, match="a master key that they lack"):
        take_over(file, second)
    assert (second / "master.key").read_text() == "newer\na-key\n"


@pytest.mark.parametrize("content", ["", "{}", '{"kind": "join"}', "[]"])
def test_something_else_is_not_taken_for_credentials(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="credentials export"):
        take_over(file, tmp_path / "second")
    with pytest.raises(ConfigError, match="no control plane was started there"):
        export_credentials(tmp_path / "nowhere", file)


# relays


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relay": "control:7400"}, "relay is 'control:7400': use the URL"),
        ({"relay": "https://c:7400"}, "token_file is not set: create a token with"),
        ({"relay": "https://c:7400", "master_key": "env:X"}, "master_key is set: a relay does not use it"),
        ({"relay": "https://c:7400", "port": 70000}, "port is 70000"),
    ],
)
def test_settings_that_make_no_relay_are_refused_with_the_fix(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message), opened_relay(ControlOptions(dir=tmp_path, **options)):  # type: ignore[arg-type]
        pass


def test_a_token_file_holds_the_token_or_is_the_join_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("shoal_relay_x\n")
    assert read_token_file(path) == ("shoal_relay_x", "")
    path.write_text(json.dumps({"token": "t", "ca": "PEM", "url": "https://c"}))
    assert read_token_file(path) == ("t", "PEM")
    for wrong in ("", "two words", "{", "{}"):
        path.write_text(wrong)
        with pytest.raises(ConfigError, match="token_file is"):
            read_token_file(path)


def test_a_control_planes_settings_come_from_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text("port: 7500\ndatabase: [a=sqlite:///a.db, b=sqlite:///b.db]\nworkspace: [ws=b]\n")
    config = checked_config(control_options(path, tmp_path))
    assert (config.port, list(config.databases), config.workspaces) == (7500, ["a", "b"], {"ws": "b"})


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [("/readyz", "10.1.2.3", 200), ("/status", "10.1.2.3", 403), ("/metrics", "10.1.2.3", 403),
     ("/status", "127.0.0.1", 200), ("/metrics", "::1", 200)],
)  # fmt: skip
async def test_from_elsewhere_a_relay_only_says_that_it_lives(path: str, host: str, status: int) -> None:

    from shoal.app.fleet.relay import mostly_local
    from shoal.base.asgi import answer

    sent: list[dict[str, object]] = []

    async def inner(_scope: object, _receive: object, send: object) -> None:
        await answer(send, 200, b"{}")  # type: ignore[arg-type]

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    scope = {"type": "http", "path": path, "client": (host, 1)}
    await mostly_local(inner)(scope, None, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == status
