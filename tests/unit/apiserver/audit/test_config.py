"""The flags of limits and audit log, as they become settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.app.config import ClusterOptions, checked_config
from shoal.errors import ConfigError


def options(tmp_path: Path, **given: Any) -> ClusterOptions:
    return ClusterOptions(dir=tmp_path, **given)


def test_the_log_is_in_the_directory_unless_it_is_elsewhere_or_off(tmp_path: Path) -> None:
    assert checked_config(options(tmp_path)).audit.path == tmp_path / "audit.log"
    assert checked_config(options(tmp_path, audit_log="/var/log/a.log")).audit.path == Path("/var/log/a.log")
    assert checked_config(options(tmp_path, audit_log="off")).audit.path is None


def test_a_policy_is_read_at_once_and_a_bad_one_stops_the_start(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Everything}]\n")
    with pytest.raises(ConfigError, match=r"rules\[0\].level is 'Everything': choose from None, Metadata"):
        checked_config(options(tmp_path, audit_policy=str(policy)))
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    assert checked_config(options(tmp_path, audit_policy=str(policy))).audit.policy is not None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"audit_max_size": 0}, "audit_max_size is 0: use 1 or more"),
        ({"audit_max_backups": -1}, "audit_max_backups is -1: use 0 or more"),
        ({"audit_max_age": -1}, "audit_max_age is -1"),
    ],
)
def test_numbers_that_cannot_be_are_named(tmp_path: Path, given: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        checked_config(options(tmp_path, **given))
