"""The audit log's files: whole lines, bounded memory, bounded disk, and no harm when the disk is full."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.apiserver.audit import files
from shoal.apiserver.audit.files import LogWriter
from shoal.base.clock import FakeClock, RealClock
from shoal.errors import ConfigError


class Text(str):
    size = 100


def encode(text: Text) -> bytes:
    if text == "strange":
        raise ValueError("cannot be encoded")
    return text.encode() + b"\n"


def writer(path: Path, **settings: Any) -> LogWriter[Text]:
    given = {"max_bytes": 1 << 20, "max_backups": 3, "max_age_days": 0, **settings}
    return LogWriter(path, encode, **{"clock": RealClock(), **given})


@contextmanager
def running(path: Path, **settings: Any) -> Iterator[LogWriter[Text]]:
    log = writer(path, **settings)
    log.start()
    try:
        yield log
    finally:
        log.stop()


def test_everything_is_on_disk_after_stop_in_order_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with running(path) as log:
        for number in range(3000):
            log.put(Text(number))
    assert path.read_text().split() == [str(number) for number in range(3000)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert log.written == 3000 and log.failed == log.overflowed == 0


def test_a_log_that_exists_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for text in ("one", "two"):
        with running(path) as log:
            log.put(Text(text))
    assert path.read_text() == "one\ntwo\n"


def test_files_are_rotated_by_size_and_the_oldest_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = writer(path, max_bytes=100, max_backups=2)
    for number in range(10):
        log.put(Text(f"{number}" * 60))
        log.flush()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names[-1] == "audit.log" and len(names) == 3
    kept = "".join((tmp_path / name).read_text() for name in names)
    assert [line[0] for line in kept.split()] == ["7", "8", "9"]


def test_files_are_removed_by_age(tmp_path: Path) -> None:
    old = tmp_path / "audit-2001-01-01T00-00-00.000000.log"
    other = tmp_path / "audit-notes.txt"
    for path in (old, other):
        path.write_text("x")
        os.utime(path, (1, 1))
    log = writer(tmp_path / "audit.log", max_bytes=10, max_age_days=30)
    for _ in range(2):
        log.put(Text("x" * 20))
        log.flush()
    assert not old.exists() and other.exists()


def test_a_full_buffer_loses_events_and_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_RECORDS", 10)
    log = writer(tmp_path / "audit.log")
    for _ in range(15):
        log.put(Text("x"))
    assert log.overflowed == 5
    log.flush()
    log.put(Text("x"))
    assert log.overflowed == 5


def test_the_buffer_is_bounded_in_bytes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 250)
    log = writer(tmp_path / "audit.log")
    for _ in range(3):
        log.put(Text("x"))
    assert log.overflowed == 1
    log.flush()
    log.put(Text("x"))
    assert log.overflowed == 1


def test_a_full_disk_loses_events_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.log"
    log = writer(path, clock=FakeClock())
    log.put(Text("before"))
    log.flush()
    write = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) > 3:
            return write(file, data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    log.put(Text("lost"))
    log.flush()
    monkeypatch.setattr(os, "write", write)
    log.put(Text("after"))
    log.flush()
    assert path.read_text() == "before\nafter\n"
    assert log.failed == 1 and log.written == 2


def test_one_event_that_cannot_be_encoded_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with running(path) as log:
        for text in ("a", "strange", "b"):
            log.put(Text(text))
    assert path.read_text() == "a\nb\n" and log.failed == 1


def test_a_path_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="audit_log is .*use a writable path"):
        writer(tmp_path / "missing" / "audit.log").start()


def test_stop_ends_the_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with running(tmp_path / "audit.log"):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
