"""`shoal rollout plan` plays a rollout without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.app.main import main

ROLLOUT = {"steps": [50], "every": "1m", "regions": ["us", "eu"]}


def file_of(folder: Path, rollout: Any, *, environment: Any = None, name: str = "app.yaml") -> str:
    app = {
        "apiVersion": "shoal.dev/v1", "kind": "App", "metadata": {"name": "web"},
        "spec": {"image": "shop/web:1", "topology": [{"region": "eu", "replicas": 4}, {"region": "us", "replicas": 2}]},
    }  # fmt: skip
    if rollout is not None:
        app["spec"] = {**app["spec"], "rollout": rollout}  # type: ignore[dict-item]  # a document
    documents = [app]
    if environment is not None:
        metadata = {"name": "prod", "project": "shop"}
        app["metadata"] = {"name": "web", "project": "shop", "environment": "prod"}
        documents.append(
            {
                "apiVersion": "shoal.dev/v1",
                "kind": "Environment",
                "metadata": metadata,
                "spec": {"rollout": environment},
            }
        )
    path = folder / name
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


@pytest.fixture(autouse=True)
def _no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "none"))


def test_the_table_has_every_step_of_every_region(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "plan", "-f", file_of(tmp_path, ROLLOUT)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "TIME", "WAVE", "STEP", "REGION", "WEIGHT", "CANDIDATE", "STABLE", "DECISION", "REASON",
    ]  # fmt: skip
    assert lines[1].split()[:8] == ["0s", "us", "weight", "50", "%", "us", "50%", "1"]
    assert lines[-1].endswith("the old revision is no longer kept")


def test_the_environment_of_the_file_has_the_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "plan", "-f", file_of(tmp_path, None, environment=ROLLOUT), "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["items"]
    assert (found["app"], found["strategy"]["kind"]) == ("shop/prod/web", "canary")
    assert found["rows"][0] == {
        "time_s": 0.0, "wave": "us", "step": "weight 50 %", "region": "us", "weight": 50, "candidate": 1, "stable": 2,
        "decision": "start", "reason": "strategy canary, first weight 50 %",
    }  # fmt: skip


def test_a_script_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.yaml"
    for text in ("- {at: 30s, errors: 9%}\n", "{at: 30s, errors: 9%}\n", "{faults: [{at: 30s, errors: 9%}]}\n"):
        script.write_text(text)
        assert main(["rollout", "plan", "-f", file_of(tmp_path, ROLLOUT), "--simulate", str(script)]) == 0
        assert "rollback   9 % errors in us" in capsys.readouterr().out


def test_what_is_wrong_is_said_with_the_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rollout", "plan"]) == 2
    assert main(["rollout", "plan", "-f", file_of(tmp_path, {"steps": [50, 5], "every": "1m"})]) == 1
    assert "spec.rollout.steps[1]" in capsys.readouterr().err
    assert main(["rollout", "plan", "-f", file_of(tmp_path, {"steps": [5]})]) == 1
    assert "spec.rollout.every" in capsys.readouterr().err
    script = tmp_path / "script.yaml"
    script.write_text("- {at: 1m, region: mars}\n")
    assert main(["rollout", "plan", "-f", file_of(tmp_path, ROLLOUT), "--simulate", str(script)]) == 2
    assert "use one of eu, us" in capsys.readouterr().err
    assert main(["rollout", "plan", "-f", file_of(tmp_path, ROLLOUT), "--simulate", str(tmp_path / "gone")]) == 2
    project = tmp_path / "project.yaml"
    project.write_text("{apiVersion: shoal.dev/v1, kind: Project, metadata: {name: a}}")
    assert main(["rollout", "plan", "-f", str(project)]) == 2
    assert "no App found" in capsys.readouterr().err
