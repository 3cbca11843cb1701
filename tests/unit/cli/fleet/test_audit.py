"""``shoal audit`` and ``shoal whoami``, against a real control plane."""

from __future__ import annotations

import json

from tests.unit.cli.conftest import Shoal


def test_changes_are_listed_with_their_authors_and_can_be_chosen(shoal: Shoal, project: str) -> None:
    newest = json.loads(shoal("audit", "--limit", "2", "-o", "json").out)
    assert [(each["actor"], each["kind"]) for each in newest] == [("admin", "Environment"), ("admin", "Project")]
    assert shoal("audit", "--kind", "project", "--limit", "1", "-o", "name").out == f"project/{project}\n"
    assert shoal("audit", "--actor", "nobody").out == "no changes\n"
    assert "CORRELATION" in shoal("audit", "-o", "wide").out.splitlines()[0]


def test_a_token_is_told_whose_it_is(shoal: Shoal) -> None:
    assert shoal("whoami", "-o", "name").out == "admin\n"
    assert shoal("whoami", "-o", "jsonpath={.role} of {.workspace}").out == "admin of default"
