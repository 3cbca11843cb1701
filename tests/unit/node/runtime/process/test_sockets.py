"""Which sockets listen: the kernel's answer and the tables of /proc."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from shoal.node.runtime.process import sockets
from shoal.node.runtime.process.sockets import ListeningSocket, asked_of_kernel, listening_address, read_from_proc


@pytest.fixture
def opened() -> Iterator[list[ListeningSocket]]:
    """Listening sockets of this process, and a connection, which does not listen."""
    places = [("127.9.9.9", socket.AF_INET), ("0.0.0.0", socket.AF_INET)]
    if socket.has_ipv6:
        places += [("::1", socket.AF_INET6), ("::", socket.AF_INET6)]
    with ExitStack() as stack:
        found: list[ListeningSocket] = []
        for address, family in places:
            made = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            try:
                made.bind((address, 0))
            except OSError:  # this machine has no IPv6
                continue
            made.listen()
            found.append(ListeningSocket(address, made.getsockname()[1], os.fstat(made.fileno()).st_ino))
        stack.enter_context(socket.create_connection(("127.9.9.9", found[0].port)))
        yield found


def test_the_kernel_and_its_tables_tell_the_same_of_our_sockets(opened: list[ListeningSocket]) -> None:
    own = {each.inode for each in opened}
    for found in (list(asked_of_kernel()), read_from_proc()):
        assert {each for each in found if each.inode in own} == set(opened)


def test_a_port_that_is_asked_for_is_the_only_one_in_the_answer(opened: list[ListeningSocket]) -> None:
    for each in opened:
        found = list(asked_of_kernel(each.port))
        assert each in found and {one.port for one in found} == {each.port}


async def test_without_an_answer_of_the_kernel_the_tables_are_read(
    opened: list[ListeningSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(port: int = 0) -> list[ListeningSocket]:
        raise OSError(2, "No such file or directory", "sock_diag")

    monkeypatch.setattr(sockets, "asked_of_kernel", refused)
    assert await listening_address("127.9.9.9", opened[0].port, ()) == "127.9.9.9"
    with pytest.raises(ConnectionRefusedError):
        await listening_address("127.9.9.8", opened[0].port, ())


def test_an_error_of_the_kernel_is_raised_with_its_number() -> None:
    body = (-1).to_bytes(4, "little", signed=True) + bytes(16)
    answer = (16 + len(body)).to_bytes(4, "little") + b"\x02\x00" + bytes(10) + body
    with pytest.raises(OSError, match="sock_diag") as caught:
        list(sockets.parsed(answer))
    assert caught.value.errno == 1
