"""The agent's own program, which ``shoal krane start`` executes after parsing its flags.

An agent runs for months beside other people's workloads, and the libraries of a command line would be a fifth of its
memory. So the command replaces itself by this module, in the same process. It imports only what an agent needs, and
its allocator returns the memory of the start to the system.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import orjson

from shoal.errors import ConfigError, ShoalError

OK, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130  # as for every command

_THRIFTY = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "65536"}
_PATHS = ("join", "dir", "kubeconfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class StartArguments:
    """The parsed command line. ``flags`` are settings by name, None if not given."""

    flags: Mapping[str, Any]
    home: str  # default directory of the agent
    config: str = ""
    stop_on_eof: bool = False

    def settings(self) -> Any:
        """As they are now: by flags, environment and file."""
        from shoal.app.settings import KRANE, read_settings

        flags = {
            name: Path(value) if name in _PATHS and value is not None else value for name, value in self.flags.items()
        }
        config = Path(self.config) if self.config else None
        return read_settings(KRANE, flags, file=config, home=Path(self.home))


def become(start: StartArguments) -> NoReturn:
    """Become the agent. Invalid settings are reported first, as in every command."""
    from shoal.krane.config import read_join_file

    read_join_file(start.settings().join)
    sys.stdout.flush()
    sys.stderr.flush()
    environ = {**_THRIFTY, **os.environ}
    os.execve(sys.executable, [sys.executable, "-m", __name__, orjson.dumps(asdict(start)).decode()], environ)


def run(start: StartArguments) -> None:
    """Until a signal."""
    from shoal.app.fleet.agent import DYNAMIC, run_krane
    from shoal.app.fleet.reloading import Reloading
    from shoal.app.processes import run_until_signal, say_ready, start_logs, stop_when_stdin_ends

    settings = start.settings()
    start_logs(settings.log_level)
    if start.stop_on_eof:
        stop_when_stdin_ends()
    reloading = Reloading(start.settings, settings, DYNAMIC)

    def serve(stop: asyncio.Event) -> object:
        return run_krane(settings, stop, say_ready, reloading)

    run_until_signal(serve, reloading, traced="shoal-krane")


def main(text: str) -> int:
    try:
        run(StartArguments(**orjson.loads(text)))
    except ShoalError as error:
        sys.stderr.write(f"error: {error}\n")
        return WRONG_USE if isinstance(error, ConfigError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
