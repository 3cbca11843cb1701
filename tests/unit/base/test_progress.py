"""Whether a client reads."""

from __future__ import annotations

from shoal.base.progress import Progress


def test_a_client_is_stalled_for_as_long_as_the_same_bytes_wait() -> None:
    progress = Progress()
    assert [progress.stalled_s(waiting, now) for waiting, now in ((9, 1.0), (9, 2.0), (9, 5.0))] == [0.0, 1.0, 4.0]
    assert progress.stalled_s(8, 6.0) == 0.0, "it has read"
    assert progress.stalled_s(0, 90.0) == 0.0, "nothing waits"


def test_it_begins_anew_when_writing_goes_on() -> None:
    progress = Progress()
    progress.stalled_s(9, 1.0)
    progress.restart()
    assert progress.stalled_s(9, 50.0) == 0.0
