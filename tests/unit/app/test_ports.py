"""The choice of a port."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoal.app.ports import any_free, claimed_port, is_free, port_of
from shoal.errors import ConfigError

HOST = "127.0.0.1"


@contextmanager
def taken() -> Iterator[int]:
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen()
        yield server.getsockname()[1]


def chosen(asked: int | None, *, default: int, remembered: Path) -> int:
    with claimed_port(asked, host=HOST, default=default, remembered=remembered) as listening:
        return port_of(listening)


def test_a_claimed_port_listens_at_once_so_that_a_second_server_takes_another(tmp_path: Path) -> None:
    default = any_free(HOST)
    with (
        claimed_port(None, host=HOST, default=default, remembered=tmp_path / "one") as first,
        claimed_port(None, host=HOST, default=default, remembered=tmp_path / "two") as second,
        claimed_port(0, host=HOST, default=default, remembered=tmp_path / "three") as third,
    ):
        assert len({port_of(each) for each in (first, second, third)}) == 3
        with socket.create_connection((HOST, port_of(first)), timeout=5):
            pass  # it waits for the server
        with (
            pytest.raises(ConfigError, match="already in use"),
            claimed_port(port_of(first), host=HOST, default=1, remembered=tmp_path / "four"),
        ):
            pass
    assert is_free(HOST, default)


def test_a_listening_port_is_not_free() -> None:
    with taken() as port:
        assert not is_free(HOST, port)
    assert is_free(HOST, port)


def test_the_next_free_port_is_taken_and_remembered(tmp_path: Path) -> None:
    remembered = tmp_path / "port"
    with taken() as busy:
        port = chosen(None, default=busy, remembered=remembered)
        assert port > busy
    # The default is free again, and still the one of last time is used: kubeconfigs stay true.
    assert chosen(None, default=busy, remembered=remembered) == port


def test_a_remembered_port_that_is_taken_gives_way(tmp_path: Path) -> None:
    remembered = tmp_path / "port"
    with taken() as busy:
        remembered.write_text(f"{busy}\n")
        port = chosen(None, default=any_free(HOST), remembered=remembered)
    assert port != busy
    assert remembered.read_text() == f"{port}\n"


def test_a_port_that_was_asked_for_is_used_or_refused_never_replaced(tmp_path: Path) -> None:
    with taken() as busy, pytest.raises(ConfigError, match=f"port is {busy}: already in use"):
        chosen(busy, default=busy, remembered=tmp_path / "port")
    assert chosen(busy, default=1, remembered=tmp_path / "port") == busy


@pytest.mark.parametrize("content", ["", "x", "0", "70000", "-1"])
def test_a_spoilt_memory_is_ignored(tmp_path: Path, content: str) -> None:
    remembered = tmp_path / "port"
    remembered.write_text(content)
    free = any_free(HOST)
    assert chosen(None, default=free, remembered=remembered) == free
