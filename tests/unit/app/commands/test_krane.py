"""`shoal krane`."""

from __future__ import annotations

import pytest
import yaml

from shoal.app.main import main


def test_the_rights_of_an_agent_are_printed_as_manifests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["krane", "manifests", "--namespace", "mine"]) == 0
    kinds = [(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(capsys.readouterr().out)]
    assert ("Namespace", "mine") in kinds and any(kind == "ClusterRole" for kind, _ in kinds)
