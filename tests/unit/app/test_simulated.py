"""The port of simulated nodes' endpoints."""

from __future__ import annotations

from pathlib import Path

from shoal.app.simulated import listening


def test_the_port_is_kept_over_restarts_and_given_up_when_taken(tmp_path: Path) -> None:
    remembered = tmp_path / "simulated-port"
    first = listening(remembered)
    assert first is not None
    port = first.getsockname()[1]
    first.close()
    again = listening(remembered)
    assert again is not None and again.getsockname()[1] == port
    other = listening(remembered)
    assert other is not None and other.getsockname()[1] != port
    assert int(remembered.read_text()) == other.getsockname()[1]
    again.close()
    other.close()


def test_a_file_without_a_port_is_ignored(tmp_path: Path) -> None:
    remembered = tmp_path / "simulated-port"
    remembered.write_text("99999999\n")
    opened = listening(remembered)
    assert opened is not None
    opened.close()
