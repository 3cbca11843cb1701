"""What long-running processes share: the line for which others wait, and the event loop."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from shoal.app.processes import run_loop, say_ready


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told_when_a_process_is_ready(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.settimeout(5)
        listening.bind(f"\0{name}" if abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if abstract else name)
        say_ready("https://h:1")
        assert listening.recv(100) == b"READY=1"
    assert capsys.readouterr().out == "ready https://h:1\n"


def test_without_systemd_only_the_line_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    say_ready()
    assert capsys.readouterr().out == "ready\n"


@pytest.mark.parametrize("installed", [True, False])
def test_a_process_runs_with_or_without_uvloop(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "uvloop", None)  # importing it raises ModuleNotFoundError
    ran: list[str] = []

    async def main() -> None:
        import asyncio

        ran.append(type(asyncio.get_running_loop()).__module__.split(".")[0])

    run_loop(main())
    assert ran == ["uvloop" if installed else "asyncio"]
