"""What a support bundle holds, and that no secret is in it."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path

import pytest
from tests.unit.cli.conftest import control_home as control_home

from shoal.app.main import main
from shoal.app.support import Redaction, bundle
from shoal.base.clock import FakeClock
from shoal.cli.contexts import current_context

PLANTED = {
    "context token": "shoal_user_plantedplantedplanted01",
    "password in a URL": "hunter2-in-a-url",
    "master key": base64.b64encode(b"planted master key bytes 0123456").decode(),
    "admin token": "shoal_user_plantedplantedplanted02",
    "private key": "MHcCAQEEIPlantedPlantedPlantedPlantedPlantedPlanted",
    "bearer in a log": "plantedbearer.abcdefghijk",
    "password in a log": "hunter2-in-a-log",
    "join token": "shoal_agent_plantedplantedplanted03",
    "variable": "hunter2-in-a-variable",
    "master key in a log": "planted-line-of-the-other-key",
}


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory with secrets where they are, and some where they should not be."""
    for folder in ("control/pki", "clusters/eu-1/nodes/node-1"):
        (tmp_path / folder).mkdir(parents=True)
    files = {
        "config.yaml": f"current: x\ncontexts:\n- name: x\n  url: https://127.0.0.1:1\n  token: {PLANTED['context token']}\n",
        "control/master.key": f"{PLANTED['master key']}\n{PLANTED['master key in a log']}\n",
        "control/admin.token": PLANTED["admin token"],
        "control/pki/ca.key": f"-----BEGIN EC PRIVATE KEY-----\n{PLANTED['private key']}\n-----END EC PRIVATE KEY-----\n",
        "clusters/eu-1/join.json": json.dumps({"token": PLANTED["join token"], "url": "https://127.0.0.1:1"}),
        "clusters/eu-1/nodes/node-1/pod.log": "what an app wrote",
        "control/control.log": "\n".join(
            [
                '{"level":"info","message":"control plane started"}',
                f"Authorization: Bearer {PLANTED['bearer in a log']}",
                f"connect postgresql://shoal:{PLANTED['password in a URL']}@db/fleet failed",
                f"password={PLANTED['password in a log']} was refused",
                f'{{"message":"{PLANTED["master key in a log"]} {PLANTED["join token"]} {PLANTED["admin token"]}"}}',
            ]
        ),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("SHOAL_CONTROL_DATABASE", f"postgresql://shoal:{PLANTED['password in a URL']}@db/fleet")
    monkeypatch.setenv("SHOAL_VAULT_TOKEN", PLANTED["variable"])
    return tmp_path


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        return {
            entry.name.removeprefix("shoal-support/"): (archive.extractfile(entry) or io.BytesIO()).read().decode()
            for entry in archive
        }


def test_no_planted_secret_is_in_the_bundle(state: Path, tmp_path: Path) -> None:
    assert main(["support-bundle", "--dir", str(state), "--to", str(tmp_path / "b.tar.gz")]) == 0
    assert (tmp_path / "b.tar.gz").stat().st_mode & 0o777 == 0o600
    found = contents(tmp_path / "b.tar.gz")
    everything = "\n".join(found.values())
    assert [name for name, secret in PLANTED.items() if secret in everything] == []
    assert "control plane started" in found["logs/control/control.log"]
    assert "what an app wrote" not in everything
    assert {"versions.json", "checks.json", "files.json", "settings/control.json", "settings/contexts.json"} <= set(
        found
    )
    assert "no response from https://127.0.0.1:1" in found["fleet/status.json.error"]


def test_the_state_of_the_fleet_is_in_it_without_the_variables_of_apps(control_home: Path) -> None:
    context = current_context(control_home, environ={})
    made = bundle(control_home, context, None, [], environ={}, clock=FakeClock(), tell=lambda _: None)
    with tarfile.open(fileobj=io.BytesIO(made)) as archive:
        names = archive.getnames()
        whole = b"".join((archive.extractfile(name) or io.BytesIO()).read() for name in names).decode()
    assert {"shoal-support/fleet/status.json", "shoal-support/fleet/control-metrics.txt"} <= set(names)
    assert context.token not in whole
    assert (control_home / "control" / "master.key").read_text().strip() not in whole
    assert "shoal_rest_requests" in whole or "# HELP" in whole


def test_what_looks_like_a_secret_is_replaced_and_other_words_stay() -> None:
    clean = Redaction(["known-secret-value", "short"])
    assert clean("a known-secret-value b") == "a [redacted] b"
    assert clean("short words stay, tokens: 3 are used") == "short words stay, tokens: 3 are used"
    assert clean('"api_key": "abcdefgh"') == '"api_key": "[redacted]"'
    key = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
    assert clean(f"x {key} y") == "x [redacted] y"
