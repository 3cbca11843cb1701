"""Messages of the Domain Name System: reads questions, writes answers (RFC 1035, EDNS of RFC 6891).

Only what a server for clients takes: one question per message, and records of the types that ``table`` has.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

A, NS, CNAME, SOA, PTR, TXT, AAAA, SRV, OPT, ANY = 1, 2, 5, 6, 12, 16, 28, 33, 41, 255
IN = 1
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = 0, 1, 2, 3, 4, 5

_HEADER = struct.Struct(">HHHHHH")  # id, flags, then the numbers of questions, answers, authorities, additional records
_RESPONSE, _AUTHORITATIVE, _TRUNCATED, _RECURSION_WANTED, _RECURSION = 0x8000, 0x400, 0x200, 0x100, 0x80
_OPCODE = 0x7800
_QUESTION = b"\xc0\x0c"  # points to the name of the question
_PLAIN_UDP = 512
_MOST_UDP = 4096
_LABEL, _NAME = 63, 255

Name = tuple[str, ...]  # labels in lower case, without the root


class BadMessage(ValueError):
    """Not a question that this server reads. ``rcode`` is for the answer; without an id there is none."""

    def __init__(self, rcode: int, text: str) -> None:
        super().__init__(text)
        self.rcode = rcode


@dataclass(frozen=True, slots=True)
class Question:
    id: int
    flags: int
    name: Name
    type: int
    raw: bytes  # as it was asked, with the letters that the client chose
    udp_bytes: int = _PLAIN_UDP
    edns: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """``data`` is an address, a name, a text, or for SRV ``(priority, weight, port, name)``."""

    name: Name
    type: int
    ttl_s: int
    data: str | Name | tuple[int, int, int, Name]


@dataclass(frozen=True, slots=True)
class Answer:
    rcode: int
    answers: tuple[Record, ...] = ()
    soa: Record | None = None  # for how long to remember that there is nothing
    additional: tuple[Record, ...] = ()


def name_of(text: str) -> Name:
    return tuple(text.lower().strip(".").split(".")) if text.strip(".") else ()


def parse(message: bytes) -> Question:
    """The question of a message; raises ``BadMessage``."""
    if len(message) < _HEADER.size:
        raise BadMessage(FORMERR, "shorter than a header")
    identity, flags, questions, answers, authorities, additional = _HEADER.unpack_from(message)
    if flags & _RESPONSE:
        raise BadMessage(FORMERR, "an answer, not a question")
    if flags & _OPCODE:
        raise BadMessage(NOTIMP, "not a query")
    if questions != 1 or answers or authorities:
        raise BadMessage(FORMERR, "not exactly one question")
    labels, at = _labels(message, _HEADER.size)
    if at + 4 > len(message):
        raise BadMessage(FORMERR, "the question is cut off")
    kind, network = struct.unpack_from(">HH", message, at)
    if network not in (IN, ANY):
        raise BadMessage(NOTIMP, "not a question about the Internet")
    raw = message[_HEADER.size : at + 4]
    size, edns = _edns(message, at + 4, additional)
    return Question(identity, flags, labels, kind, raw, size, edns)


def _labels(message: bytes, at: int) -> tuple[Name, int]:
    found: list[str] = []
    begin = at
    while True:
        if at >= len(message):
            raise BadMessage(FORMERR, "the name is cut off")
        length = message[at]
        if length == 0:
            break
        if length > _LABEL:
            raise BadMessage(FORMERR, "the name of a question has a pointer")
        label = message[at + 1 : at + 1 + length]
        if len(label) < length or at + length - begin > _NAME:
            raise BadMessage(FORMERR, "the name is cut off or too long")
        found.append(label.decode("latin-1").lower())
        at += 1 + length
    return tuple(found), at + 1


def _edns(message: bytes, at: int, additional: int) -> tuple[int, bool]:
    """The size of datagrams that the client takes, from an OPT record right after the question."""
    if additional and message[at : at + 3] == b"\0\0\x29" and len(message) >= at + 11:
        (size,) = struct.unpack_from(">H", message, at + 3)
        return min(max(size, _PLAIN_UDP), _MOST_UDP), True
    return _PLAIN_UDP, False


def encode(question: Question, answer: Answer, *, limit: int | None = None, recursion: bool = False) -> bytes:
    """The message with an answer. One that is longer than ``limit`` says so instead, and the client asks by TCP."""
    flags = _RESPONSE | _AUTHORITATIVE | (question.flags & _RECURSION_WANTED) | answer.rcode
    flags |= _RECURSION if recursion else 0
    options = b"\0\0\x29" + struct.pack(">HIH", _MOST_UDP, 0, 0) if question.edns else b""
    bodies = [b"".join(_record(each, question.name) for each in part) for part in _parts(answer)]
    body = question.raw + b"".join(bodies) + options
    if limit is not None and _HEADER.size + len(body) > limit:
        flags |= _TRUNCATED
        head = _HEADER.pack(question.id, flags, 1, 0, 0, len(options) and 1)
        return head + question.raw + options
    counts = [len(part) for part in _parts(answer)]
    head = _HEADER.pack(question.id, flags, 1, counts[0], counts[1], counts[2] + (1 if options else 0))
    return head + body


def refusal(message: bytes, rcode: int) -> bytes | None:
    """The answer to a message that is not a question; None if it is not even the beginning of one, or an answer."""
    if len(message) < _HEADER.size:
        return None
    identity, flags, *_ = _HEADER.unpack_from(message)
    if flags & _RESPONSE:
        return None
    return _HEADER.pack(identity, _RESPONSE | (flags & (_OPCODE | _RECURSION_WANTED)) | rcode, 0, 0, 0, 0)


def _parts(answer: Answer) -> Iterator[tuple[Record, ...]]:
    yield answer.answers
    yield () if answer.soa is None else (answer.soa,)
    yield answer.additional


def _record(record: Record, asked: Name) -> bytes:
    data = _data(record)
    owner = _QUESTION if record.name == asked else packed_name(record.name)
    return owner + struct.pack(">HHIH", record.type, IN, record.ttl_s, len(data)) + data


def _data(record: Record) -> bytes:
    if isinstance(record.data, str):
        if record.type in (A, AAAA):
            return ipaddress.ip_address(record.data).packed
        text = record.data.encode()
        return bytes([len(text)]) + text
    if record.type == SRV:
        priority, weight, port, target = cast(tuple[int, int, int, Name], record.data)
        return struct.pack(">HHH", priority, weight, port) + packed_name(target)
    labels = cast(Name, record.data)
    if record.type != SOA:
        return packed_name(labels)
    first, contact = packed_name(("ns", "dns", *labels)), packed_name(("hostmaster", *labels))
    return first + contact + struct.pack(">IIIII", 1, 7200, 1800, 86400, record.ttl_s)


def packed_name(name: Name) -> bytes:
    return b"".join(bytes([len(raw)]) + raw for raw in (each.encode("latin-1") for each in name)) + b"\0"
