"""Parsers of the engine's streams: frames, log lines, timestamps and JSON lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.node.runtime.docker.frames import BadFrame, Frames, JsonLines, LogLines, instant, instant_ns, log_record
from shoal.node.runtime.model import OutputStream


def frame(stream: int, data: bytes) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(data).to_bytes(4) + data


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The same bytes in pieces."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]


_frames = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8)


@settings(max_examples=200, deadline=None)
@given(frames=_frames, sizes=st.lists(st.integers(0, 13), max_size=30), whole=st.booleans())
def test_each_stream_gets_its_bytes_in_order_however_they_are_cut(
    frames: list[tuple[int, bytes]], sizes: list[int], whole: bool
) -> None:
    reader = Frames(terminal=False)
    found = [
        each
        for piece in cut(b"".join(frame(*each) for each in frames), sizes)
        for each in reader.feed(piece, whole=whole)
    ]
    for number, stream in ((1, OutputStream.STDOUT), (2, OutputStream.STDERR)):
        sent = b"".join(data for which, data in frames if which == number)
        assert b"".join(data for which, data in found if which is stream) == sent
    assert all(data for _, data in found)
    if whole:
        assert [data for _, data in found] == [data for _, data in frames if data]


def test_a_piece_of_a_frame_is_handed_on_before_the_rest_has_come() -> None:
    reader = Frames(terminal=False)
    assert list(reader.feed(frame(1, b"hello")[:10])) == [(OutputStream.STDOUT, b"he")]
    assert list(reader.feed(b"llo")) == [(OutputStream.STDOUT, b"llo")]
    assert list(reader.feed(frame(2, b"x"))) == [(OutputStream.STDERR, b"x")]


def test_a_terminal_has_no_frames() -> None:
    assert list(Frames(terminal=True).feed(b"\x01\x00anything")) == [(OutputStream.STDOUT, b"\x01\x00anything")]


def test_invalid_frames_and_errors_of_the_engine_are_raised() -> None:
    with pytest.raises(BadFrame, match="without frames"):
        list(Frames(terminal=False).feed(b"just some text"))
    with pytest.raises(BadFrame, match="disk is full"):
        list(Frames(terminal=False).feed(frame(3, b"disk is full")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-01T00:00:00Z", 1704067200_000000000),
        ("2024-01-01T00:00:00.5Z", 1704067200_500000000),
        ("2024-01-01T00:00:00.123456789Z", 1704067200_123456789),
        ("2024-01-01T02:00:00.000000001+02:00", 1704067200_000000001),
        ("2023-12-31T19:00:00-05:00", 1704067200_000000000),
        ("0001-01-01T00:00:00Z", 0),
        ("", 0),
        ("2024-01-01", 0),
        ("hello", 0),
        ("2024-01-01T00:00:00.Z", 1704067200_000000000),
    ],
)
def test_times_are_read_to_the_nanosecond(text: str, expected: int) -> None:
    assert instant_ns(text) == expected
    assert instant(text) == (expected / 1e9 if expected else None)


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=30))
def test_no_text_breaks_the_reading_of_times(text: str) -> None:
    assert instant_ns(text) >= 0


_STAMP = b"2024-01-01T00:00:00.000000007Z"


def test_a_record_has_its_time_and_exactly_its_bytes() -> None:
    found = log_record(OutputStream.STDERR, _STAMP + b"  two spaces \n")
    assert (found.at_ns, found.stream, found.data, found.partial) == (
        1704067200_000000007,
        OutputStream.STDERR,
        b" two spaces \n",
        False,
    )
    assert log_record(OutputStream.STDOUT, _STAMP + b" half").partial
    assert log_record(OutputStream.STDOUT, _STAMP + b" \n").data == b"\n"
    assert log_record(OutputStream.STDOUT, _STAMP + b"\n").data == b"\n"
    assert log_record(OutputStream.STDOUT, b"no time here\n").data == b"no time here\n"


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.binary(max_size=20).map(lambda b: b.replace(b"\n", b"")), max_size=6),
    sizes=st.lists(st.integers(0, 25), max_size=20),
    terminal=st.booleans(),
)
def test_log_lines_come_whole_however_they_are_cut(lines: list[bytes], sizes: list[int], terminal: bool) -> None:
    stamped = [_STAMP + b" " + line + b"\n" for line in lines]
    reader = LogLines(terminal=terminal)
    data = b"".join(stamped) if terminal else b"".join(frame(1, each) for each in stamped)
    found = [record for piece in cut(data, sizes) for record in reader.feed(piece)]
    assert [record.data for record in found] == [line + b"\n" for line in lines]
    assert list(reader.end()) == []


def test_a_last_line_without_an_end_is_partial() -> None:
    reader = LogLines(terminal=True)
    assert list(reader.feed(_STAMP + b" prompt> ")) == []
    (last,) = reader.end()
    assert (last.data, last.partial) == (b"prompt> ", True)


def test_json_lines_may_be_cut_anywhere() -> None:
    reader = JsonLines()
    assert list(reader.feed(b'{"a":1}\r\n\n{"b"')) == [{"a": 1}]
    assert list(reader.feed(b':2}\n{"c":3}')) == [{"b": 2}]
    assert list(reader.end()) == [{"c": 3}]
    with pytest.raises(BadFrame, match="not JSON"):
        list(reader.feed(b"oops\n"))
