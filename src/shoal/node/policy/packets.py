"""Rules for the kernel's packet filter (nftables), as messages of its netlink protocol.

One table with one hook, where packets are routed from pod to pod:

    forward   accepts what belongs to a connection that began before; jumps to the chains of source and target
    e…        of pods with the same rules about where they connect to: returns if one fits, else drops
    i…        of pods with the same rules about what they accept

All of it is replaced at once, in one transaction.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network

from shoal.node.policy.model import Allow, Block, PortRange, Rules

TABLE = "shoal-policies"
_SUBSYSTEM = 10
_BEGIN, _END = 16, 17
_NEW_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 2, 3, 6
_REQUEST, _ACK, _CREATE, _APPEND = 1, 4, 0x400, 0x800
_IPV4 = 2
_HOOK_FORWARD, _PRIORITY = 2, 0
_ACCEPT, _DROP, _JUMP, _RETURN = 1, 0, -3, -5
_VERDICT, _REGISTER = 0, 1
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_SOURCE, _TARGET, _TARGET_PORT = 12, 16, 2  # offsets
_EQUAL, _UNEQUAL = 0, 1
_CT_STATE, _ESTABLISHED, _RELATED = 0, 2, 4
_META_PROTOCOL = 16
_PROTOCOLS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_NESTED = 0x8000
_ERROR = 2
_BUFFER_BYTES = 32 << 20
_SNDBUFFORCE = 32
_ANSWER_BYTES = 1 << 16
_ANSWER_S = 5.0


def apply(kernel: socket.socket, rules: Rules) -> None:
    """Replace the rules in the network namespace of a netfilter socket; raises ``OSError``."""
    message = transaction(rules)
    for option in (_SNDBUFFORCE, socket.SO_SNDBUF):
        try:
            kernel.setsockopt(socket.SOL_SOCKET, option, min(_BUFFER_BYTES, 2 * len(message) + _ANSWER_BYTES))
            break
        except PermissionError:
            continue
    kernel.settimeout(_ANSWER_S)
    kernel.send(message)
    _check(kernel.recv(_ANSWER_BYTES))


def _check(answers: bytes) -> None:
    at = 0
    while at + 20 <= len(answers):
        length, kind, _, _, _, code = struct.unpack_from("=IHHIIi", answers, at)
        if kind == _ERROR and code:
            raise OSError(-code, os.strerror(-code))
        at += max((length + 3) & ~3, 16)
    if not answers:
        raise OSError(errno.EPROTO, "the packet filter gave no answer")


def transaction(rules: Rules) -> bytes:
    messages: list[tuple[int, int, bytes]] = [
        (_NEW_TABLE, _CREATE, _text(1, TABLE)),  # so that there is one to delete
        (_DELETE_TABLE, 0, _text(1, TABLE)),
        (_NEW_TABLE, _CREATE, _text(1, TABLE)),
    ]
    hook = _nest(4, _number(1, _HOOK_FORWARD) + _number(2, _PRIORITY))
    chain = _text(1, TABLE) + _text(3, "forward") + hook + _number(5, _ACCEPT) + _text(7, "filter")
    messages.append((_NEW_CHAIN, _CREATE, chain))
    begun = _load_state() + _mask(struct.pack("=I", _ESTABLISHED | _RELATED)) + _compare(bytes(4), _UNEQUAL)
    body = [_rule("forward", begun + _verdict(_ACCEPT))]
    for letter, offset, peer, way in (("e", _SOURCE, _TARGET, rules.egress), ("i", _TARGET, _SOURCE, rules.ingress)):
        names: dict[tuple[Allow, ...], str] = {}
        for address, allows in sorted(way.items()):
            name = names.get(allows)
            if name is None:
                name = names[allows] = f"{letter}{len(names)}"
                messages.append((_NEW_CHAIN, _CREATE, _text(1, TABLE) + _text(3, name)))
                body += [_rule(name, each + _verdict(_RETURN)) for each in _matches(allows, peer)]
                body.append(_rule(name, _verdict(_DROP)))
            one = _load(_NETWORK_HEADER, offset, 4) + _compare(IPv4Address(address).packed)
            body.append(_rule("forward", one + _verdict(_JUMP, name)))
    messages += [(_NEW_RULE, _CREATE | _APPEND, each) for each in body]
    return _batch(messages)


def _matches(allows: Iterable[Allow], peer: int) -> Iterable[bytes]:
    """Expressions, each of which fits what is allowed; they differ in peer or port."""
    for allow in allows:
        peers = [b""] if allow.peers is None else [_block(each, peer) for each in allow.peers]
        ports = [b""] if allow.ports is None else [_port(each) for each in allow.ports]
        for one in peers:
            for port in ports:
                yield one + port


def _block(block: Block, offset: int) -> bytes:
    made = _in_network(block.cidr, offset, _EQUAL)
    return made + b"".join(_in_network(each, offset, _UNEQUAL) for each in block.excepts)


def _in_network(cidr: str, offset: int, operation: int) -> bytes:
    network = IPv4Network(cidr, strict=False)
    load = _load(_NETWORK_HEADER, offset, 4)
    return load + _mask(network.netmask.packed) + _compare(network.network_address.packed, operation)


def _port(port: PortRange) -> bytes:
    protocol = _expression("meta", _number(1, _REGISTER) + _number(2, _META_PROTOCOL))
    protocol += _compare(bytes([_PROTOCOLS[port.protocol]]))
    first, last = (_data(kind, struct.pack(">H", number)) for kind, number in ((3, port.first), (4, port.last)))
    within = _expression("range", _number(1, _REGISTER) + _number(2, _EQUAL) + first + last)
    return protocol + _load(_TRANSPORT_HEADER, _TARGET_PORT, 2) + within


# expressions


def _load(base: int, offset: int, length: int) -> bytes:
    return _expression("payload", _number(1, _REGISTER) + _number(2, base) + _number(3, offset) + _number(4, length))


def _load_state() -> bytes:
    return _expression("ct", _number(1, _REGISTER) + _number(2, _CT_STATE))


def _mask(mask: bytes) -> bytes:
    body = _number(1, _REGISTER) + _number(2, _REGISTER) + _number(3, len(mask))
    return _expression("bitwise", body + _data(4, mask) + _data(5, bytes(len(mask))))


def _compare(value: bytes, operation: int = _EQUAL) -> bytes:
    return _expression("cmp", _number(1, _REGISTER) + _number(2, operation) + _data(3, value))


def _verdict(code: int, chain: str = "") -> bytes:
    inner = _attribute(1, struct.pack(">i", code)) + (_text(2, chain) if chain else b"")
    return _expression("immediate", _number(1, _VERDICT) + _nest(2, _nest(2, inner)))


def _expression(name: str, body: bytes) -> bytes:
    return _nest(1, _text(1, name) + _nest(2, body))


def _rule(chain: str, expressions: bytes) -> bytes:
    return _text(1, TABLE) + _text(2, chain) + _nest(4, expressions)


# messages


def _batch(messages: Iterable[tuple[int, int, bytes]]) -> bytes:
    listed = list(messages)
    found = [_message(_BEGIN, _REQUEST, 0, b"", family=0, resource=_SUBSYSTEM)]
    for number, (kind, flags, body) in enumerate(listed, start=1):
        last = _ACK if number == len(listed) else 0  # what fails is always said
        found.append(_message(_SUBSYSTEM << 8 | kind, _REQUEST | flags | last, number, body))
    found.append(_message(_END, _REQUEST, len(listed) + 1, b"", family=0, resource=_SUBSYSTEM))
    return b"".join(found)


def _message(kind: int, flags: int, sequence: int, body: bytes, *, family: int = _IPV4, resource: int = 0) -> bytes:
    content = struct.pack(">BBH", family, 0, resource) + body
    return struct.pack("=IHHII", 16 + len(content), kind, flags, sequence, 0) + content


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _nest(kind: int, value: bytes) -> bytes:
    return _attribute(kind | _NESTED, value)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack(">I", value))


def _data(kind: int, value: bytes) -> bytes:
    return _nest(kind, _attribute(1, value))
