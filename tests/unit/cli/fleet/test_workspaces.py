"""What `shoal workspaces set` sends and `quotas` shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal.cli.fleet import workspaces

QUOTAS = {"apps": {"used": 2, "limit": 10}}


class Session:
    """A control plane that remembers what it was sent."""

    def __init__(self) -> None:
        self.rest = self
        self.sent: list[tuple[str, str, Any]] = []

    def get(self, path: str) -> dict[str, Any]:
        self.sent.append(("GET", path, None))
        return {"quotas": QUOTAS, "domains": ["a.example"], "tolerations": None}

    def request(self, method: str, path: str, body: Any = None) -> None:
        self.sent.append((method, path, body))


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()

    @contextmanager
    def opened(_context: str) -> Iterator[Session]:
        yield made

    monkeypatch.setattr(workspaces, "opened", opened)
    return made


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["--quota", "apps=5", "--quota", "keys=default"], {"quotas": {"apps": 5, "keys": None}}),
        (["--domain", "a.example", "--domain", "b.example"], {"domains": ["a.example", "b.example"]}),
        (["--no-domains", "--no-tolerations"], {"domains": [], "tolerations": []}),
        (["--toleration", "gpu"], {"tolerations": ["gpu"]}),
        (["--default-tolerations"], {"defaultTolerations": True}),
    ],
)
def test_only_what_is_named_is_set(session: Session, words: list[str], body: dict[str, Any]) -> None:
    done = CliRunner().invoke(workspaces.app, ["set", "team", *words])
    assert (done.exit_code, done.stdout) == (0, "workspace team   changed\n"), done.output
    assert session.sent == [("PATCH", "/api/v1/workspaces/team", body)]


@pytest.mark.parametrize("words", [[], ["--quota", "apps"]])
def test_nothing_is_sent_when_the_words_say_nothing(session: Session, words: list[str]) -> None:
    assert CliRunner().invoke(workspaces.app, ["set", "team", *words]).exit_code == 2 and session.sent == []


def test_quotas_of_ones_own_workspace_and_all_of_another(session: Session) -> None:
    own = CliRunner().invoke(workspaces.app, ["quotas"])
    assert own.stdout.split() == ["QUOTA", "USED", "LIMIT", "apps", "2", "10"]
    other = CliRunner().invoke(workspaces.app, ["quotas", "team"])
    assert "domains: a.example\ntolerations: (default)\n" in other.stdout
    assert [path for _, path, _ in session.sent] == ["/api/v1/quotas", "/api/v1/workspaces/team"]
