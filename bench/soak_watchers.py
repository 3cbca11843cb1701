"""Watchers of an API server in a process of their own, so that reading them does not delay the client that is measured.

python bench/soak_watchers.py URL DIRECTORY COUNT PATH       prints a line when all are open; ends with its input
"""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from shoal.testing.servers import ServerProcess
from shoal.testing.watchers import idle_watchers

POLL_S = 0.1


@contextmanager
def watchers_process(server: ServerProcess, count: int, path: str) -> Iterator[subprocess.Popen[bytes]]:
    """``count`` watches of ``path``, whose events are read and dropped until the end of the block."""
    command = [sys.executable, __file__, server.url, str(server.directory), str(count), path]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    if process.stdout.readline() != b"ready\n":
        raise RuntimeError("the watchers did not start")
    try:
        yield process
    finally:
        process.communicate(timeout=60)


def main(url: str, directory: str, count: int, path: str) -> None:
    server = ServerProcess(cast(Any, None), url, Path(directory))  # this process only connects to it
    with idle_watchers(server, count, path) as watchers:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], POLL_S)[0]:
            watchers.drain()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
