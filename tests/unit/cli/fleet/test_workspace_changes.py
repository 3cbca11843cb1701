"""Quotas as they are typed."""

from __future__ import annotations

import pytest
import typer

from shoal.cli.fleet.workspace_changes import quota_rows, read_quotas


def test_quotas_are_read() -> None:
    assert read_quotas(["apps=10", "keys=default"]) == {"apps": 10, "keys": None}


@pytest.mark.parametrize("word", ["apps", "apps=", "apps=-1", "apps=many"])
def test_a_quota_without_a_number_is_refused(word: str) -> None:
    with pytest.raises(typer.BadParameter, match="use NAME=NUMBER"):
        read_quotas([word])


def test_quotas_are_shown_one_per_line() -> None:
    assert quota_rows({"apps": {"used": 1, "limit": 2}}) == [{"quota": "apps", "used": 1, "limit": 2}]
