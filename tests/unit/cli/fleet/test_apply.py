"""Reports and batches of `shoal apply`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shoal.cli.contexts import Context
from shoal.cli.fleet.apply import batches, report, send
from shoal.cli.fleet.documents import ManifestDocument
from shoal.cli.fleet.session import FleetSession
from shoal.cli.rest import AnswerLost, Rest


def test_the_report_of_a_dry_run_says_what_would_change() -> None:
    result = {
        "object": {"kind": "Project", "metadata": {"name": "p"}}, "created": False, "effects": [], "dryRun": True,
        "changed": [{"path": "spec.x", "before": None, "after": "a\nb"}], "warnings": ["careful"],
    }  # fmt: skip
    assert report([result]) == "project p   would be changed\n  spec.x: (none) → 'a\\nb'\n  note: careful\n"
    key = {**result, "created": True, "dryRun": False, "warnings": []}
    key["object"] = {**result["object"], "status": {"key": "shk_1"}}
    assert report([key]) == "project p   created\n  key (shown only once): shk_1\n"


def test_batches_are_limited_in_number_and_size() -> None:
    small = [ManifestDocument({"n": n}, "f") for n in range(1001)]
    assert [len(batch) for batch in batches(small)] == [500, 500, 1]
    large = [ManifestDocument({"text": "x" * 500_000}, "f") for _ in range(3)]
    assert [len(batch) for batch in batches(large)] == [1, 1, 1]
    assert list(batches([])) == []


@contextmanager
def a_server_that_hangs_up(answer: bytes) -> Iterator[str]:
    """Its URL. It reads a request and closes the connection with ``answer``, which is not a whole one. After that it
    accepts no connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            listener.close()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_a_connection_that_is_lost_half_way_tells_what_may_have_been_applied(answer: bytes) -> None:
    batch = [ManifestDocument({"kind": "Project", "metadata": {"name": name}}, f"{name}.yaml") for name in ("a", "b")]
    with a_server_that_hangs_up(answer) as url:
        session = FleetSession(Rest(Context("test", url, "token", "")), "", "")
        with pytest.raises(AnswerLost) as lost:
            send(session, batch, dry_run=False)
    text = "either all or none of a.yaml (Project a) to b.yaml (Project b) were applied: apply again to be sure"
    assert text in str(lost.value)
