"""Logs of process containers: the shim writes and rotates them, the runtime reads and follows them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.base.clock import FakeClock
from shoal.node.runtime.model import LogOptions, LogRecord, OutputStream
from shoal.node.runtime.process.logs import read_log
from shoal.node.runtime.process.shim.log import ContainerLog


def written(
    folder: Path, pieces: list[tuple[str, bytes]], *, max_bytes: int = 1 << 20, files: int = 5, line_bytes: int = 16384
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        log = ContainerLog(max_bytes, files, line_bytes)
        for stream, data in pieces:
            log.write(stream, data)
        log.end()


async def records(folder: Path, block_bytes: int = 1 << 18, **options: Any) -> list[LogRecord]:
    found = read_log(
        folder, LogOptions(**options), clock=FakeClock(), ended=lambda: True, closing=asyncio.Event(),
        block_bytes=block_bytes,
    )  # fmt: skip
    return [record async for batch in found for record in batch]


def text(found: list[LogRecord], stream: OutputStream) -> bytes:
    return b"".join(record.data for record in found if record.stream is stream)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=40).map(lambda b: b.replace(b"\r", b"\n"))),
        max_size=30,
    ),
    st.integers(1, 200),
)
async def test_a_log_reads_back_for_any_sizes_of_writes_and_blocks(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[tuple[str, bytes]], block: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    written(folder, pieces, line_bytes=16)
    found = await records(folder, block)
    for stream in OutputStream:
        expected = b"".join(data for name, data in pieces if name == stream)
        assert text(found, stream) == expected
    for tail in (0, 1, 2, 1000):
        last = await records(folder, block, tail=tail, streams=frozenset({OutputStream.STDOUT}))
        lines = b"".join(data for name, data in pieces if name == "stdout").split(b"\n")
        lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        assert text(last, OutputStream.STDOUT) == b"".join(lines[max(0, len(lines) - tail) :] if tail else [])


async def test_rotation_keeps_the_newest_parts_and_reading_goes_over_all_of_them(tmp_path: Path) -> None:
    lines = [f"line {n}\n".encode() for n in range(1000)]
    written(tmp_path, [("stdout", line) for line in lines], max_bytes=4096, files=3)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1", "log.2"]
    assert all(each.stat().st_size <= 4096 for each in tmp_path.iterdir())
    found = [record.data for record in await records(tmp_path)]
    assert 100 < len(found) < 1000
    assert found == lines[-len(found) :]
    assert [record.data for record in await records(tmp_path, tail=150)] == lines[-150:]


async def test_following_misses_nothing_while_parts_are_rotated_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    clock, over = FakeClock(), asyncio.Event()
    log = ContainerLog(4096, 4)
    seen: list[bytes] = []

    async def follow() -> None:
        options = LogOptions(follow=True)
        found = read_log(tmp_path, options, clock=clock, ended=over.is_set, closing=asyncio.Event())
        async for batch in found:
            seen.extend(record.data for record in batch)

    task = asyncio.create_task(follow(), name="follow")
    expected = []
    for n in range(900):
        expected.append(f"line {n}\n".encode())
        log.write("stdout", expected[-1])
        if n % 100 == 0:  # less than what the parts hold
            await clock.advance(0.05)
    over.set()
    await clock.advance(0.1)
    await asyncio.wait_for(task, 5)
    assert seen == expected


def test_a_disk_that_is_full_does_not_end_the_shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").symlink_to("/dev/full")
    log = ContainerLog(4096, 2)
    log.write("stdout", b"lost\n")
    log.end()
