"""``shoal cluster start``, as far as it needs no cluster."""

from __future__ import annotations

import signal
import subprocess
import sys

ARRANGE = "from shoal.app.processes import stop_when_stdin_ends; stop_when_stdin_ends();"


def test_with_stop_on_eof_a_process_exits_when_its_standard_input_closes() -> None:
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
