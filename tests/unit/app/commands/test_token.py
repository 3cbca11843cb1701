"""`shoal token`, and the reload of its changes by a running server."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from shoal.apiserver.authn.credential import Credential
from shoal.app.commands.token import lifetime
from shoal.app.config import ClusterConfig, ClusterOptions, StoreUrl, checked_config
from shoal.app.credentials import StaticToken, create_token, ensure_admin, read_access, read_tokens, revoke_token
from shoal.app.main import main
from shoal.app.pki import Pki
from shoal.app.reload import as_credentials, follow_credentials
from shoal.base.clock import FakeClock
from shoal.base.ids import token_digest
from shoal.errors import ConfigError

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    """A directory in which a cluster has been started once."""
    config = ClusterConfig(dir=tmp_path, store=StoreUrl("memory"), port=6443)
    pki = Pki(config.pki_dir, now=datetime.now(UTC))
    pki.ensure_ca()
    pki.ensure_service_account_key()
    ensure_admin(config, pki.ca_cert)
    return config


def run(config: ClusterConfig, *words: str) -> int:
    return main(["token", *words, "--dir", str(config.dir)])


def test_a_token_is_printed_once_and_kept_as_its_digest(
    config: ClusterConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(config, "create", "--user", "alice", "--group", "dev", "--group", "ops", "--ttl", "24h") == 0
    token = capsys.readouterr().out.strip()
    assert len(token) > 40
    held = read_tokens(config.tokens_path)[token_digest(token)]
    assert (held.user, held.groups) == ("alice", ("dev", "ops"))
    assert held.name.startswith("alice-")
    assert held.expires_at is not None
    assert timedelta(hours=23, minutes=59) < held.expires_at - datetime.now(UTC) <= timedelta(hours=24)
    assert not [path for path in config.dir.rglob("*") if path.is_file() and token in path.read_text()]
    assert config.tokens_path.stat().st_mode & 0o777 == 0o600


def test_a_kubeconfig_can_be_had_instead(config: ClusterConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "create", "--user", "alice", "--kubeconfig") == 0
    path = config.dir / "alice.kubeconfig"
    path.write_text(capsys.readouterr().out)
    found, admin = read_access(path), read_access(config.kubeconfig_path)
    assert found is not None and admin is not None
    assert (found.url, found.ca_pem) == (admin.url, admin.ca_pem)
    assert read_tokens(config.tokens_path)[token_digest(found.token)].user == "alice"


def test_tokens_are_listed_and_revoked_by_name(config: ClusterConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, "create", "--user", "alice", "--name", "laptop") == 0
    token = capsys.readouterr().out.strip()
    assert run(config, "list") == 0
    listed = capsys.readouterr().out
    assert [line.split()[:2] for line in listed.splitlines()] == [
        ["NAME", "USER"], ["admin", "kubernetes-admin"], ["laptop", "alice"],
    ]  # fmt: skip
    assert token not in listed
    assert run(config, "list", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)[1]["name"] == "laptop"
    assert run(config, "revoke", "laptop") == 0
    assert token_digest(token) not in read_tokens(config.tokens_path)
    assert len(read_tokens(config.tokens_path)) == 1
    assert run(config, "revoke", "laptop") == 2
    assert "token 'laptop' not found (existing tokens: admin)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--user", ""], "user is empty"),
        (["--user", "a", "--kind", "agent"], "kind is 'agent': not for tokens of a cluster"),
        (["--user", "a", "--kind", "edge"], "kind is 'edge': not for tokens of a cluster"),
        (["--user", "a", "--kind", "robot"], "kind is 'robot': use user, agent, edge"),
        (["--user", "a", "--region", "eu"], "region is 'eu': not for tokens of a cluster"),
        (["--user", "a", "--cluster", "c"], "cluster is 'c': not for tokens of a cluster"),
        (["--user", "a", "--ttl", "soon"], "ttl is 'soon'"),
        (["--user", "a", "--ttl", "0s"], "ttl is '0s'"),
        (["--user", "a", "--name", "admin"], "a token with this name exists"),
        (["--user", "a", "--name", "a b"], "name is 'a b'"),
        (["--user", "a", "--group", ""], "group is empty"),
    ],
)
def test_an_invalid_token_is_refused_in_one_line(
    config: ClusterConfig, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    before = config.tokens_path.read_bytes()
    assert run(config, "create", *words) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.out == ""
    assert config.tokens_path.read_bytes() == before


def test_a_directory_without_a_cluster_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "list", "--dir", str(tmp_path)]) == 2
    assert "no cluster found there" in capsys.readouterr().err


def test_the_cluster_of_shoal_up_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    below = tmp_path / "clusters" / "local"
    Pki(below / "pki", now=datetime.now(UTC)).ensure_ca()
    assert main(["token", "create", "--user", "a", "--dir", str(tmp_path)]) == 0
    assert len(read_tokens(below / "tokens.json")) == 1


@pytest.mark.parametrize(
    ("text", "life"),
    [
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("24h", timedelta(hours=24)),
        ("7d", timedelta(days=7)),
        ("1d2h3m4s", timedelta(days=1, hours=2, minutes=3, seconds=4)),
    ],
)
def test_a_life_is_written_with_units(text: str, life: timedelta) -> None:
    assert lifetime(text) == life


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1.5h", "1h 2m", "0d", "99999999999999d", "2m1h"])
def test_a_life_without_units_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="ttl is"):
        lifetime(text)


def test_expired_tokens_are_forgotten_when_a_new_one_is_made(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    old = StaticToken(name="old", user="a", expires_at=NOW + timedelta(hours=1))
    create_token(path, old, now=NOW)
    create_token(path, StaticToken(name="new", user="a"), now=NOW + timedelta(minutes=59))
    assert {token.name for token in read_tokens(path).values()} == {"old", "new"}
    create_token(path, old, now=NOW + timedelta(hours=1))
    assert len(read_tokens(path)) == 2


@pytest.mark.parametrize("content", ["", "{", "[]", '{"tokens": []}', '{"tokens": {"a": {}}}', '{"tokens": {"a": 1}}'])
def test_a_spoilt_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="is not a valid token file"):
        read_tokens(path)


class Followed:
    """Stands for the server's authentication and remembers what it was given last."""

    def __init__(self) -> None:
        self.authenticator = self
        self.tokens: dict[str, Credential] = {}
        self.keys: tuple[bytes, Any] = (b"", ())

    def replace_tokens(self, tokens: dict[str, Credential]) -> None:
        self.tokens = tokens

    def replace_keys(self, signing: bytes, older: Any) -> None:
        self.keys = signing, older


async def test_a_running_server_takes_changes_over_within_a_second(
    config: ClusterConfig, capfd: pytest.CaptureFixture[str]
) -> None:
    clock, server = FakeClock(), Followed()
    task = asyncio.create_task(follow_credentials(config, server, clock))  # type: ignore[arg-type]
    await clock.advance(0)
    assert len(server.tokens) == 1
    signing, older = server.keys
    assert older == ()

    made = create_token(config.tokens_path, StaticToken(name="t", user="a", expires_at=NOW), now=clock.now())
    await clock.advance(1)
    assert server.tokens[token_digest(made)].user.groups == ("system:authenticated",)
    assert server.tokens[token_digest(made)].not_after == NOW.timestamp()
    revoke_token(config.tokens_path, "t")
    await clock.advance(1)
    assert token_digest(made) not in server.tokens

    config.tokens_path.write_text("{")
    await clock.advance(1)
    assert len(server.tokens) == 1, "a file that cannot be read changes nothing"

    kept = Pki(config.pki_dir, now=datetime.now(UTC)).rotate_service_account_key()
    await clock.advance(1)
    assert server.keys[0] != signing
    assert server.keys[1] == (kept.read_bytes(),)
    kept.unlink()
    await clock.advance(1)
    assert server.keys[1] == ()
    task.cancel()
    shown = capfd.readouterr().err
    assert "credentials not reloaded" in shown
    assert "PRIVATE" not in shown


def test_the_key_can_be_rotated_from_the_command_line(
    config: ClusterConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (config.pki_dir / "sa.key").read_bytes()
    assert run(config, "rotate-key") == 0
    assert (config.pki_dir / "sa.key").read_bytes() != before
    (kept,) = config.pki_dir.glob("sa-*.pub")
    assert str(kept) in capsys.readouterr().out
    assert kept.stat().st_mode & 0o777 == 0o600


def test_static_tokens_are_authenticated_users(config: ClusterConfig) -> None:
    (credential,) = as_credentials(read_tokens(config.tokens_path)).values()
    assert credential.user.groups == ("system:masters", "system:authenticated")


def test_anonymous_requests_are_off_unless_a_flag_turns_them_on(tmp_path: Path) -> None:
    assert not checked_config(ClusterOptions(dir=tmp_path)).anonymous
    assert checked_config(ClusterOptions(dir=tmp_path, anonymous_auth=True)).anonymous
