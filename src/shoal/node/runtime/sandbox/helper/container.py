"""Starts a program in a container: a new one, or a command in one that runs.

The shim forks a process that gathers what the container may see of the machine and enters the pod's namespaces; that
one forks the container's first process into a process namespace of its own and ends, so that the shim is the parent.
Only open files cross the border: after it, nothing is looked up by a path of the machine.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import termios

from shoal.node.runtime.process.shim import system
from shoal.node.runtime.process.shim.child import NOT_FOUND, NOT_STARTED, StartError, run_program

from . import files, identity, limits, privileges, root, sources, users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# The open files of the pod in every shim, at fixed numbers, so that another helper finds them there
USER, CLUSTER, FIRST = 10, 11, 12  # then the namespaces of ``pods.KINDS``
_OF_CONTAINER = ("net", "ipc", "uts", "mnt", "pid")


def spawn(config: dict[str, Any], argv: list[str], streams: tuple[int, int, int], inside: int = 0) -> int:
    """Start a program with these streams and return its pid. ``inside``: the pid of a process whose container it joins,
    instead of a new one. Raises ``StartError`` if the program does not exist or cannot be run."""
    failures, failed = os.pipe()
    born, birth = os.pipe()
    wait, go = os.pipe()
    first = os.fork()
    if first == 0:
        for number in (failures, born, go):
            os.close(number)
        _prepare(config, argv, streams, (failed, birth, wait), inside)
    for number in (failed, birth, wait):
        os.close(number)
    try:
        found = os.read(born, 32)
        os.waitpid(first, 0)
        pid = int(found) if found else 0
        if pid:
            limits.join(config["cgroup"], pid)
            os.write(go, b"1")
        text = b""
        while piece := os.read(failures, 65536):
            text += piece
    finally:
        for number in (failures, born, go):
            os.close(number)
    if text or not pid:
        if pid:
            os.waitpid(pid, 0)
        code, _, message = text.decode(errors="replace").partition(" ")
        raise StartError(int(code or NOT_STARTED), message or "the process that prepares the container was killed")
    return pid


def _prepare(
    config: dict[str, Any], argv: list[str], streams: tuple[int, int, int], pipes: tuple[int, int, int], inside: int
) -> NoReturn:
    failed, birth, wait = pipes
    try:
        privileges.hide_from_others()
        found = None
        if inside:
            _join(config, inside)
        else:
            found = _leave_machine(config)
        pid = os.fork()
        if pid == 0:
            os.close(birth)
            _begin(config, argv, streams, (failed, wait), found)
        os.write(birth, b"%d" % pid)
        os._exit(0)
    except BaseException as error:
        _fail(failed, error)


def _join(config: dict[str, Any], inside: int) -> None:
    kinds = ("user", *_OF_CONTAINER) if config["outside"] else _OF_CONTAINER
    opened = {kind: system.open_namespace(inside, kind) for kind in kinds}
    for kind in _OF_CONTAINER:
        if os.fstat(opened[kind]).st_ino == os.stat(f"/proc/self/ns/{kind}").st_ino:  # shared with the machine
            os.close(opened.pop(kind))
    users.become_root_of(opened.pop("user", -1))
    for number in opened.values():
        system.join(number)


def _leave_machine(config: dict[str, Any]) -> sources.Sources:
    user = USER if config["outside"] else -1
    found = sources.gather(config, user)
    users.become_root_of(user)
    for number, kind in enumerate(config["kinds"]):
        if kind:
            system.join(FIRST + number)
    sources.add_shared(config, found)
    own_processes = config["pid_of"] == 0
    system.unshare(system.NEWNS | (system.NEWPID if own_processes else 0))
    return found


def _begin(
    config: dict[str, Any],
    argv: list[str],
    streams: tuple[int, int, int],
    pipes: tuple[int, int],
    found: sources.Sources | None,
) -> NoReturn:
    failed, wait = pipes
    try:
        if not os.read(wait, 1):
            os._exit(NOT_STARTED)  # the shim was killed
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(0o022)
        if found is not None:
            root.build(config, found)
        environment = dict(config["env"])
        if os.isatty(0):
            environment.setdefault("TERM", "xterm")
        _enter_folder(config)
        _become(config, environment)
        if found is not None:
            _die_with_shim(wait)
        run_program(argv, environment)
    except BaseException as error:
        _fail(failed, error)


def _enter_folder(config: dict[str, Any]) -> None:
    try:
        if config["make_cwd"] and not config["read_only_root"]:
            os.makedirs(config["cwd"], exist_ok=True)
        os.chdir(config["cwd"])
    except OSError as error:
        raise StartError(NOT_STARTED, f"chdir to {config['cwd']!r}: {files.error_text(error)}") from None


def _become(config: dict[str, Any], environment: dict[str, str]) -> None:
    for kind, limit in config["limits"]:
        _, hard = resource.getrlimit(kind)
        ceiling = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (ceiling, ceiling))
    who = identity.find(config)
    environment.setdefault("HOME", who.home)
    privileges.new_keyring()
    held = config["capabilities"]
    if held is not None:
        privileges.keep_only(held)
    if config["no_new_privileges"]:
        privileges.forbid_new_privileges()
    if config["filter"]:
        privileges.filter_calls(config["filter"])  # while there is the right to do so
    if config["groups_change"]:
        os.setgroups(who.groups)
    os.setresgid(who.group, who.group, who.group)
    os.setresuid(who.user, who.user, who.user)
    if held is not None:
        privileges.hold_only(held if who.user == 0 else [])
    system.default_signals()


def _die_with_shim(wait: int) -> None:
    system.die_with_parent()
    ended = select.poll()
    ended.register(wait, 0)
    if ended.poll(0):  # it has died before that
        os._exit(NOT_STARTED)


def _fail(failed: int, error: BaseException) -> NoReturn:
    if isinstance(error, StartError):
        text = f"{error.code} {error}"
    else:
        text = f"{NOT_STARTED} {files.error_text(error)}"
    os.write(failed, text.encode())
    os._exit(NOT_FOUND)
