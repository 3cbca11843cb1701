"""Guarantees of ``shoal cluster start`` that do not need a cluster."""

from __future__ import annotations

import signal
import subprocess
import sys

ARRANGE = "from shoal.app.processes import stop_when_stdin_ends; stop_when_stdin_ends();"


def test_a_process_that_was_told_so_ends_with_its_standard_input() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ARRANGE + "print(1, flush=True); import time; time.sleep(30)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(5) == -signal.SIGTERM


def test_it_can_still_end_by_itself_while_its_standard_input_is_open() -> None:
    with subprocess.Popen([sys.executable, "-c", ARRANGE], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.wait(5) == 0
        assert process.stderr
        assert process.stderr.read() == b""
