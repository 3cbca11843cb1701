"""Starts the helper: ``python -I -S -c … FOLDER`` returns once it runs in the background; the exit code says how.

An ordinary user's helper moves into the user namespace of the cluster and runs again from there, from a folder that is
read-only for it: otherwise a container whose root is that user could open the interpreter through ``/proc/PID/exe``
of a process that enters it, and change it.
"""

from __future__ import annotations

import fcntl
import gc
import marshal
import os
import sys

from shoal.node.runtime.process.shim import mounts, system

from . import users
from .main import LOCK, Helper, surviving_shims

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MODULE = "shoal.node.runtime.sandbox.helper.boot"
_RUN = f"import sys; sys.path.insert(0, sys.argv.pop(1)); from {_MODULE} import main; main()"


def main() -> None:
    source = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 5))
    folder, again = sys.argv[1], sys.argv[2:]
    os.chdir(folder)
    os.umask(0o077)
    config: dict[str, Any] = marshal.loads(_content("config"))  # noqa: S302 - written by our own user
    if again:
        _run(config, int(again[0]))
        return
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # it runs already
    started, ready = os.pipe()
    if os.fork():
        os.close(ready)
        sys.exit(0 if os.read(started, 1) else 1)
    os.close(started)
    os.setsid()
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    if config["root"]:
        system.unshare(system.NEWNS)
        system.mount("none", "/", flags=system.MS_REC | system.MS_SLAVE)
        _run(config, ready)
        return
    _enter_users(config)
    system.unshare(system.NEWNS)
    system.mount("none", "/", flags=system.MS_REC | system.MS_SLAVE)
    for path in config["programs"]:
        _make_read_only(path)
    for number in (lock, ready):
        os.set_inheritable(number, True)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", _RUN, source, os.getcwd(), str(ready)])


def _enter_users(config: dict[str, Any]) -> None:
    for shim in surviving_shims():
        try:
            system.enter(shim, "user")
        except OSError:
            continue
        return
    users.enter_new(config["uids"], config["gids"], config["mapper"])


def _make_read_only(path: str) -> None:
    number = mounts.taken(os.open(path, os.O_PATH | os.O_CLOEXEC))
    system.change_mount(number, system.ATTR_RDONLY)
    system.place_mount(number, path)
    os.close(number)


def _run(config: dict[str, Any], ready: int) -> None:
    os.set_inheritable(ready, False)
    helper = Helper(config)
    helper.prepare()
    inode = helper.listen()
    gc.collect()
    gc.disable()
    gc.freeze()  # shims are forks: what is not touched stays shared
    os.write(ready, b"1")
    os.close(ready)
    helper.run(inode)


def _content(path: str) -> bytes:
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    found = b""
    while piece := os.read(number, 65536):
        found += piece
    os.close(number)
    return found
