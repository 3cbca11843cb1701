from __future__ import annotations

import os
import socket

import pytest

from shoal.node.runtime.sandbox.helper.netlink import NetlinkError, RouteSocket, attribute, message, text


def test_messages_and_attributes_are_padded_to_four_bytes_and_say_their_own_length() -> None:
    assert text(3, "eth0") == bytes((9, 0, 3, 0)) + b"eth0\0" + bytes(3)
    assert attribute(1, b"1234") == bytes((8, 0, 1, 0)) + b"1234"
    assert message(16, 5, 7, b"body") == bytes((20, 0, 0, 0, 16, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0)) + b"body"


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel looks at rights first")
def test_a_refusal_of_the_kernel_is_an_error_with_its_reason() -> None:
    links = RouteSocket()
    try:
        with pytest.raises(NetlinkError, match="No such device"):
            links.remove(99999, "nothing")
    finally:
        links.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root could")
def test_without_rights_a_route_is_refused() -> None:
    links = RouteSocket()
    try:
        with pytest.raises(NetlinkError, match="Operation not permitted"):
            links.add_route(socket.if_nametoindex("lo"), "10.244.0.1")
    finally:
        links.close()
