"""Requests as bytes, and whole answers. No value can bring a line break into a request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A complete answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request_bytes(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None = None) -> bytes:
    """A request; with ``body``, even an empty one, its length is declared."""
    lines = [f"{checked(method)} {checked(target)} HTTP/1.1\r\n", header_lines(headers)]
    if body is not None:
        lines.append(f"content-length: {len(body)}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1") + (body or b"")


def header_lines(headers: Iterable[tuple[str, str]]) -> str:
    return "".join([f"{checked(name)}: {checked(value)}\r\n" for name, value in headers])


def chunk(data: bytes) -> bytes:
    """A piece of a body in chunks; empty data would end the body, so it becomes nothing."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


LAST_CHUNK = b"0\r\n\r\n"


def checked(text: str) -> str:
    """``text``, unless it would end its line; then ``ValueError``."""
    if "\r" in text or "\n" in text or "\0" in text:
        raise ValueError(f"{text[:40]!r} cannot be sent: it contains a line break")
    return text
