"""Credentials that a second control plane takes over from the first."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shoal.app.fleet.config import ControlOptions, checked_config, opened_config
from shoal.app.fleet.credentials import export_credentials, take_over
from shoal.app.pki import Pki
from shoal.errors import ConfigError


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


def test_join_files_have_the_urls_of_the_fleet_its_own_first(tmp_path: Path) -> None:
    first, file = tmp_path / "first", tmp_path / "credentials.json"
    with opened_config(ControlOptions(dir=first, port=7611)) as config:
        assert config.join_urls == ("https://127.0.0.1:7611",)
    a_control_plane(first)
    export_credentials(first, file)
    for source, name in ((file, "second"), (first, "third")):
        options = ControlOptions(dir=tmp_path / name, credentials=source, port=7612)
        with opened_config(options) as config:
            assert config.join_urls == ("https://127.0.0.1:7612", "https://127.0.0.1:7611")
        with opened_config(ControlOptions(dir=tmp_path / name, port=7613)) as config:  # moved, without credentials
            assert config.join_urls == ("https://127.0.0.1:7613", "https://127.0.0.1:7611")
    named = ("https://b.example:7400", "https://a.example:7400")
    with opened_config(ControlOptions(dir=first, port=7611, join_url=named)) as config:
        assert config.join_urls == named
    export_credentials(first, file)
    with opened_config(ControlOptions(dir=tmp_path / "fourth", credentials=file, port=7614)) as config:
        assert config.join_urls == ("https://127.0.0.1:7614", *named)
    with pytest.raises(ConfigError, match="join_url is 'b:1': use https://HOST:PORT"):
        checked_config(ControlOptions(dir=first, join_url=("b:1",)))


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "credentials.json"
    export_credentials(a_control_plane(tmp_path / "first"), file)
    file.chmod(0o640)
    with pytest.raises(ConfigError, match=r"other users can read it; run chmod 600"):
        take_over(file, tmp_path / "second")
    assert not (tmp_path / "second").exists()


AS_USER = """
import os, sys
from pathlib import Path
from shoal.app.fleet.credentials import take_over
from shoal.errors import ConfigError
os.chdir(sys.argv[1])
os.setgroups([])
os.setgid(65532)
os.setuid(65532)
try:
    take_over(Path("credentials.json"), Path("second"))
except ConfigError as error:
    print(error)
else:
    print("taken over")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the owner of a mounted Secret is root")
@pytest.mark.parametrize(("mode", "said"), [(0o440, "taken over"), (0o444, "other users"), (0o460, "other users")])
def test_a_mounted_secret_is_read_by_its_group_alone(tmp_path: Path, mode: int, said: str) -> None:
    file = tmp_path / "credentials.json"
    export_credentials(a_control_plane(tmp_path / "first"), file)
    os.chown(file, 0, 65532)
    file.chmod(mode)
    os.chown(tmp_path, 65532, 65532)
    done = subprocess.run([sys.executable, "-c", AS_USER, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert said in done.stdout, done.stderr


def test_credentials_of_another_fleet_are_never_overwritten(tmp_path: Path) -> None:
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
def test_a_file_without_credentials_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="credentials export"):
        take_over(file, tmp_path / "second")
    with pytest.raises(ConfigError, match="no control plane was started there"):
        export_credentials(tmp_path / "nowhere", file)
