"""Makes a process that was forked as one that was executed: files, signals, rights, environment and standard streams.

A container's program may only be forked where nothing tells it from one that was executed, except that its memory holds
what the fork server has imported. ``fits`` decides that. What differs is done by ``run``, after the container's
namespaces, limits and user are set.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import runpy
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from shoal.node.runtime.process.shim import system
from shoal.node.runtime.process.shim.mounts import is_inside

if TYPE_CHECKING:
    from pathlib import Path

# An interpreter, its C library and its linker read these at their start, which is over
_READ_AT_START = ("PYTHON", "MALLOC_", "LD_", "GLIBC_", "LANG", "LC_")
OWN_SETTINGS = ("MALLOC_ARENA_MAX",)  # of the fork server
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)  # by a new interpreter
_COMMAND_AT, _ENVIRONMENT_AT = 45, 47  # fields of /proc/self/stat after the name: begin and end
_FILES = 65536
_STANDARD_ERROR = 2


class Forked:
    """What a forked process knows of its start."""

    def __init__(self, environment: Mapping[str, str], source: Path, packages: Sequence[str]) -> None:
        """``environment`` is that of the fork server; ``source`` the folder that has our modules; ``packages`` what
        may be forked: ``python -m PACKAGE``."""
        self._packages = frozenset(packages)
        self._environment = {name: text for name, text in environment.items() if name not in OWN_SETTINGS}
        self._folders = tuple({os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, source)})

    def fits(self, argv: list[str], environment: dict[str, str], targets: list[str]) -> bool:
        """Whether the program may be forked: ``python -m`` with a package of ours, with settings of the interpreter
        that are those of the fork server, and with nothing mounted over Python or our modules."""
        if len(argv) < 3 or argv[0] != sys.executable or argv[1] != "-m" or argv[2] not in self._packages:
            return False
        names = (name for name in {*environment, *self._environment} if name.startswith(_READ_AT_START))
        if any(environment.get(name) != self._environment.get(name) for name in names):
            return False
        places = [os.path.realpath(target) for target in targets]
        return not any(
            is_inside(place, folder) or is_inside(folder, place) for place in places for folder in self._folders
        )

    @staticmethod
    def run(argv: list[str], environment: dict[str, str]) -> NoReturn:
        """Run ``python -m PACKAGE …`` in this process, and end it."""
        os.closerange(3, _FILES)
        system.keep_rights_of_exec()
        begin(argv, environment)
        sys.path[0:0] = [os.getcwd()]
        sys.argv = ["-m", *argv[3:]]
        end(lambda: runpy.run_module(argv[2], run_name="__main__", alter_sys=True))


def take_over(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Take over the environment, and show it and these words in /proc."""
    os.environ.clear()
    _overwrite(_ENVIRONMENT_AT, [f"{name}={text}" for name, text in environment.items()])
    os.environ.update(environment)
    _overwrite(_COMMAND_AT, words)


def begin(words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Take over signals, environment, time zone and standard streams."""
    system.default_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    take_over(words, environment)
    time.tzset()
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, f"__{name}__")  # made for the same locale
        made: Any = open(
            number, "w" if number else "r", encoding=before.encoding, errors=before.errors, closefd=False,
            buffering=1 if number == _STANDARD_ERROR or os.isatty(number) else -1,
        )  # fmt: skip
        made.buffer.raw.name = f"<{name}>"
        setattr(sys, name, made)
        setattr(sys, f"__{name}__", made)


def end(work: Any) -> NoReturn:
    """Do the work, then end as an interpreter does, without taking down modules: that would write to all shared
    pages."""
    code, interrupted = 0, False
    try:
        found = work()
        code = found if isinstance(found, int) else 0
    except SystemExit as asked:
        code = asked.code if isinstance(asked.code, int) else 0 if asked.code is None else 1
        if asked.code is not None and not isinstance(asked.code, int):
            sys.stderr.write(f"{asked.code}\n")
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        if interrupted:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        os._exit(code & 0xFF)


def _overwrite(field: int, texts: Sequence[str]) -> None:
    """Show these texts in /proc in place of the fork server's, those that have room."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as opened:
        fields = opened.read().rpartition(")")[2].split()
    begin_at, end_at = int(fields[field]), int(fields[field + 1])
    room = end_at - begin_at - 1
    raw = b""
    for text in texts:
        more = os.fsencode(text) + b"\0"
        if len(raw) + len(more) <= room:
            raw += more
    ctypes.memset(begin_at, 0, room)
    ctypes.memmove(begin_at, raw, len(raw))
