"""Of kinds with very many objects only the newest are reported."""

from __future__ import annotations

import orjson

from shoal.navigator.edge.newest import NewestRows


class Sink:
    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.most = 0

    def put(self, kind: str, key: str, data: bytes) -> None:
        self.rows[key] = data
        self.most = max(self.most, len(self.rows))

    def remove(self, kind: str, key: str) -> None:
        del self.rows[key]

    def ready(self, kind: str) -> None: ...

    def status(self, kind: str, state: str, error: str) -> None: ...


def an_event(second: int, type_: str = "Normal") -> bytes:
    return orjson.dumps({"metadata": {"name": "e"}, "type": type_, "lastTimestamp": f"2026-01-02T03:04:{second:02}Z"})


def test_beyond_the_limit_the_oldest_go_and_warnings_last() -> None:
    sink = Sink()
    newest = NewestRows(sink, 20)
    for second in range(30, 0, -1):  # as a list gives them: in no order of time
        newest.put("events", f"e{second}", an_event(second, "Warning" if second < 4 else "Normal"))
    assert len(sink.rows) <= 20 and sink.most <= 21
    assert {"e1", "e2", "e3"} <= sink.rows.keys(), "warnings stay"
    assert {f"e{second}" for second in range(16, 31)} <= sink.rows.keys()


def test_an_object_that_was_left_out_comes_back_when_it_changes_and_may_be_removed() -> None:
    sink = Sink()
    newest = NewestRows(sink, 2)
    for second in (1, 2, 3):
        newest.put("events", f"e{second}", an_event(second))
    assert sink.rows.keys() == {"e2", "e3"}
    newest.remove("events", "e1")
    newest.put("events", "e1", an_event(9))
    assert sink.rows.keys() == {"e1", "e3"}
    newest.configure("events", 1)
    assert sink.rows.keys() == {"e1"}
    newest.configure("events", 0)
    newest.put("events", "e4", an_event(10))
    assert not sink.rows
