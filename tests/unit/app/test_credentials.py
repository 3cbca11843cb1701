"""The admin's token and kubeconfig."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from shoal.app.config import ClusterConfig, StoreUrl
from shoal.app.credentials import (
    StaticToken,
    ensure_admin,
    read_access,
    read_tokens,
    write_tokens,
)
from shoal.base.ids import token_digest


@pytest.fixture
def config(tmp_path: Path) -> ClusterConfig:
    return ClusterConfig(dir=tmp_path, store=StoreUrl("memory"), port=6443)


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    path = tmp_path / "ca.crt"
    path.write_text("CA")
    return path


def token_of(config: ClusterConfig) -> str:
    access = read_access(config.kubeconfig_path)
    assert access is not None
    return access.token


def test_the_kubeconfig_is_yaml_with_server_authority_and_token(config: ClusterConfig, ca: Path) -> None:
    tokens = ensure_admin(config, ca)
    document = yaml.safe_load(config.kubeconfig_path.read_text())
    assert document["kind"] == "Config"
    assert document["current-context"] == document["contexts"][0]["name"]
    cluster = document["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:6443"
    assert base64.b64decode(cluster["certificate-authority-data"]) == b"CA"
    assert tokens[token_digest(document["users"][0]["user"]["token"])].groups == ("system:masters",)


def test_the_token_is_in_the_kubeconfig_only_and_both_files_are_private(config: ClusterConfig, ca: Path) -> None:
    ensure_admin(config, ca)
    token = token_of(config)
    holders = [path.name for path in config.dir.rglob("*") if path.is_file() and token in path.read_text()]
    assert holders == ["kubeconfig"]
    for path in (config.kubeconfig_path, config.tokens_path):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_second_start_keeps_the_token(config: ClusterConfig, ca: Path) -> None:
    ensure_admin(config, ca)
    first = token_of(config)
    ensure_admin(config, ca)
    assert token_of(config) == first


def test_another_port_or_authority_changes_the_kubeconfig_and_keeps_the_token(config: ClusterConfig, ca: Path) -> None:
    ensure_admin(config, ca)
    first = token_of(config)
    ca.write_text("NEW")
    ensure_admin(replace(config, port=7000), ca)
    access = read_access(config.kubeconfig_path)
    assert access is not None
    assert (access.url, access.ca_pem, access.token) == ("https://127.0.0.1:7000", b"NEW", first)


def test_a_kubeconfig_that_its_owner_extended_is_left_alone(config: ClusterConfig, ca: Path) -> None:
    ensure_admin(config, ca)
    document = yaml.safe_load(config.kubeconfig_path.read_text())
    document["contexts"][0]["context"]["namespace"] = "mine"
    config.kubeconfig_path.write_text(yaml.safe_dump(document))
    ensure_admin(config, ca)
    assert yaml.safe_load(config.kubeconfig_path.read_text()) == document


@pytest.mark.parametrize("content", [None, "", "{", "a: [", "[]", "{}"])
def test_a_lost_kubeconfig_means_a_new_token_and_the_end_of_the_old_one(
    config: ClusterConfig, ca: Path, content: str | None
) -> None:
    ensure_admin(config, ca)
    old = token_of(config)
    config.kubeconfig_path.unlink()
    if content is not None:
        config.kubeconfig_path.write_text(content)
    tokens = ensure_admin(config, ca)
    assert token_of(config) != old
    assert token_digest(old) not in tokens
    assert tokens == read_tokens(config.tokens_path)


def test_other_static_tokens_stay(config: ClusterConfig, ca: Path) -> None:
    robot = StaticToken(name="build", user="robot", groups=("ci",), uid="u1")
    write_tokens(config.tokens_path, {"d" * 64: robot})
    assert ensure_admin(config, ca)["d" * 64] == robot
    assert len(read_tokens(config.tokens_path)) == 2
