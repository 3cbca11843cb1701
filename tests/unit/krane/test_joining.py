"""The join file of a running agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from shoal.base.files import write_private
from shoal.errors import ConfigError
from shoal.krane import joining
from shoal.krane.joining import JoinFileReader


def write(path: Path, token: str) -> None:
    content = {"url": "http://127.0.0.1:1", "token": token, "cluster": "c", "region": "r"}
    write_private(path, orjson.dumps(content))


def test_a_replaced_file_is_read_and_one_that_did_not_change_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "join.json"
    write(path, "one")
    reader = JoinFileReader(path)
    count = 0
    plain = joining.read_join_file

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return plain(*arguments)

    monkeypatch.setattr(joining, "read_join_file", counted)
    assert [reader().token for _ in range(5)] == ["one"] * 5 and count == 0
    write(path, "two")
    assert [reader().token for _ in range(5)] == ["two"] * 5 and count == 1


def test_while_the_file_is_broken_or_gone_what_it_said_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "join.json"
    write(path, "one")
    reader = JoinFileReader(path)
    path.write_text("{")
    assert reader().token == "one"
    path.unlink()
    assert reader().token == "one"
    write(path, "two")
    assert reader().token == "two"
    with pytest.raises(ConfigError):
        JoinFileReader(tmp_path / "none.json")
