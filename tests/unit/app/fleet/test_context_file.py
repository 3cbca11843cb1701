"""The context that control plane and navigator write at their start."""

from __future__ import annotations

from pathlib import Path

from shoal.app.fleet.config import ControlOptions, checked_config
from shoal.app.fleet.context_file import guide, home_of, note_url, write_context
from shoal.app.navigator.config import NavigatorOptions
from shoal.app.navigator.config import checked_config as checked_navigator
from shoal.cli.contexts import Context, read_contexts, save_context


def a_server(home: Path, name: str, url: str) -> None:
    (home / name / "pki").mkdir(parents=True)
    (home / name / "pki" / "ca.crt").write_text(f"CA of {name}")
    (home / name / "admin.token").write_text(f"token-{name}\n")
    note_url(home / name, url)


def test_the_context_has_both_servers_whichever_started_first(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    a_server(home, "navigator", "https://fleet.example:7410")
    assert write_context(home) is None, "without a control plane there is nothing to talk to"
    a_server(home, "control", "https://fleet.example:7400")
    context = write_context(home)
    assert context == Context(
        "control", "https://fleet.example:7400", "token-control", "CA of control",
        navigator="https://fleet.example:7410", navigator_token="token-navigator", navigator_ca="CA of navigator",
    )  # fmt: skip
    assert read_contexts(home).current == "control"


def test_another_current_context_stays_current(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    a_server(home, "control", "https://fleet.example:7400")
    save_context(home, Context("local", "https://127.0.0.1:7400", "t"))
    write_context(home)
    found = read_contexts(home)
    assert found.current == "local" and set(found.known) == {"local", "control"}


def test_a_directory_elsewhere_has_no_context(tmp_path: Path) -> None:
    assert home_of(tmp_path / "control", "control") == tmp_path
    assert home_of(tmp_path / "state", "control") is None


def test_the_advertised_url_is_in_certificate_join_files_and_guide(tmp_path: Path) -> None:
    url = "https://fleet.example:443"
    config = checked_config(ControlOptions(dir=tmp_path, host="0.0.0.0", advertise_url=(url,)))
    assert config.public_url == url and config.join_urls == (url,) and "fleet.example" in config.certificate_hosts
    assert url in "\n".join(guide(config.public_url, None))
    chosen = checked_config(ControlOptions(dir=tmp_path, advertise_url=(url,), join_url=("https://relay.example:1",)))
    assert chosen.join_urls == ("https://relay.example:1",) and chosen.public_url == url
    navigator = checked_navigator(NavigatorOptions(dir=tmp_path, advertise_url=(url,)))
    assert navigator.public_url == url and "fleet.example" in navigator.certificate_hosts
