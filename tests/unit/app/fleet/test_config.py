"""Settings of control planes and relays."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.app.fleet.config import ControlOptions, checked_config, opened_relay
from shoal.base.settings import load
from shoal.errors import ConfigError


def control_options(path: Path, folder: Path) -> ControlOptions:
    return load(ControlOptions, file=path, flags={"dir": folder})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relay": "control:7400"}, "relay is 'control:7400': use the URL"),
        ({"relay": "https://c:7400"}, "token_file is not set: create a token with"),
        ({"relay": "https://c:7400", "master_key": "env:X"}, "master_key is set: a relay does not use it"),
        ({"relay": "https://c:7400", "port": 70000}, "port is 70000"),
    ],
)
def test_invalid_settings_of_a_relay_are_refused_with_the_fix(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message), opened_relay(ControlOptions(dir=tmp_path, **options)):  # type: ignore[arg-type]
        pass


def test_a_control_plane_reads_its_settings_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text("port: 7500\ndatabase: [a=sqlite:///a.db, b=sqlite:///b.db]\nworkspace: [ws=b]\n")
    config = checked_config(control_options(path, tmp_path))
    assert (config.port, list(config.databases), config.workspaces) == (7500, ["a", "b"], {"ws": "b"})
