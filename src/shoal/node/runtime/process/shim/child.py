"""The steps of a new process between fork and exec, for the container's program or a command in the container."""

from __future__ import annotations

import fcntl
import os
import resource
import termios

from . import mounts, system

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing these at run time would double the memory of a shim
    from collections.abc import Callable
    from typing import Any, NoReturn

    Run = Callable[[list[str], dict[str, str]], NoReturn]

NOT_FOUND, NOT_STARTED = 127, 128


class StartError(Exception):
    """The program could not be started."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def spawn(
    config: dict[str, Any], argv: list[str], streams: tuple[int, int, int], inside: int = 0, run: Run | None = None
) -> int:
    """Start a program with these streams and return its pid. ``inside``: the pid of a process whose namespaces it
    joins, instead of new ones. ``run`` runs it in place of ``exec``. Raises ``StartError`` if the program does not
    exist or cannot be run."""
    failures, failed = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(failures)
        _become(config, argv, streams, failed, inside, run or run_program)
    os.close(failed)
    text = b""
    while piece := os.read(failures, 65536):
        text += piece
    os.close(failures)
    if text:
        os.waitpid(pid, 0)
        code, _, message = text.decode().partition(" ")
        raise StartError(int(code), message)
    return pid


def _become(
    config: dict[str, Any], argv: list[str], streams: tuple[int, int, int], failed: int, inside: int, run: Run
) -> NoReturn:
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        _confine(config, inside)
        environment = dict(config["env"])
        if os.isatty(0):
            environment.setdefault("TERM", "xterm")
        run(argv, environment)
    except StartError as error:
        text = f"{error.code} {error}"
    except BaseException as error:
        text = f"{NOT_STARTED} {_text(error)}"
    os.write(failed, text.encode())
    os._exit(NOT_FOUND)


def _confine(config: dict[str, Any], inside: int) -> None:
    mode = config["namespaces"]
    if inside and mode:
        system.enter(inside, *(("user",) if mode == "user" else ()), "mnt", "uts")
    elif mode:
        os.umask(0o022)
        mounts.isolate(mode, config["hostname"])
        hide_disks = config["confined"] and mode == "root"
        cover = (config["covered"], config["kept"], config["sources"])
        mounts.mount_all(config["mounts"], config["scratch"], cover, hide_disks)
    if mode and config["confined"]:
        system.drop_capabilities()
        system.enter_domain()
    try:
        os.chdir(config["cwd"])
    except OSError as error:
        raise StartError(NOT_STARTED, f"chdir to {config['cwd']!r}: {_text(error)}") from None
    for kind, limit in config["limits"]:
        soft, hard = resource.getrlimit(kind)
        ceiling = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (ceiling, ceiling))
    if config["groups"] is not None:
        os.setgroups(config["groups"])
    if config["group"] is not None:
        os.setgid(config["group"])
    if config["user"] is not None:
        os.setuid(config["user"])
    os.umask(0o022)
    system.default_signals()
    if not inside:
        system.die_with_parent()


def run_program(argv: list[str], environment: dict[str, str]) -> NoReturn:
    """Run the program, searched in the ``PATH`` of the container. Not with ``os.execvpe``: it imports modules, which
    may not be readable in the new mount namespace."""
    program, denied = argv[0], None
    folders = [""] if "/" in program else environment.get("PATH", "/usr/bin:/bin").split(":")
    for folder in folders:
        try:
            os.execve(os.path.join(folder, program), argv, environment)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            denied = error
        except OSError as error:
            raise StartError(NOT_STARTED, f'exec: "{program}": {error.strerror}') from None
    if denied is not None:
        raise StartError(NOT_STARTED, f'exec: "{program}": {denied.strerror}')
    if "/" in program and os.path.exists(program):
        raise StartError(NOT_FOUND, f'exec: "{program}": its interpreter was not found')
    where = f"stat {program}: no such file or directory" if "/" in program else "executable file not found in $PATH"
    raise StartError(NOT_FOUND, f'exec: "{program}": {where}')


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
