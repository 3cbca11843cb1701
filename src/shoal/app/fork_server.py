"""The process from which ``shoal up`` forks its children: it has imported their modules once, for all of them.

A child that is forked has nothing to import, and shares the pages of code and modules with the others. This process
never runs an event loop and never starts a thread: what a fork would copy half-done must not exist here. It answers on
a socket pair, one datagram per child, and ends when the other end is closed.

    {"arguments": ["control", "start"], "environ": {}}  with standard input, output and error  ->  {"pid": 17}

With a ``function``, ``package.module:name``, the child calls that with the arguments in place of the shoal command.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

_GROUPS = ("apps", "autoscaling", "cluster", "extension", "hpa", "networking", "policy", "storage")
MODULES: Mapping[str, tuple[str, ...]] = {
    "control": (
        "shoal.app.commands.control", "shoal.app.fleet.control", "shoal.app.fleet.reloading", "uvloop",
        # which each of them loads at its start
        "shoal.app.main", "shoal.cli.dispatch", "typer._click.decorators", "uvicorn.lifespan.off", "encodings.idna",
        "cryptography.hazmat.backends.openssl.backend",
    ),
    "navigator": (
        "shoal.app.commands.navigator", "shoal.app.navigator.manager", "shoal.app.fleet.reloading", "uvloop",
        "shoal.navigator.manager.sqlite",
    ),
    "cluster": (
        "shoal.app.commands.cluster", "shoal.app.cluster", "shoal.app.components", "shoal.app.nodes",
        "shoal.app.runtimes", "shoal.app.fleet.part", "shoal.app.navigator.part", "shoal.app.sharding.part", "uvloop",
        # loaded with the first object of a kind, thus by every cluster
        *(f"shoal.kube.kinds.{group}" for group in _GROUPS), "shoal.kube.crd.checks", "shoal.kube.crd.serving",
        "shoal.kube.crd.validation", "shoal.kube.crd.conditions", "shoal.kube.crd.kind", "shoal.kube.webhooks",
    ),
}  # fmt: skip
MESSAGE_BYTES = 100_000
STREAMS = 3
_ARGUMENTS_AT = 45  # fields of /proc/self/stat after the name: begin and end of the command line
_RESET = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a child runs."""

    arguments: Sequence[Any]  # of the shoal command: texts
    environ: Mapping[str, str]  # in addition
    function: str = ""


def serve(connection: socket.socket) -> ForkRequest | None:
    """Import modules and answer requests. Returns in each child, with its request; None at the end."""
    gc.disable()  # nothing here becomes garbage, and a collection would write to every page
    waiting = [module for modules in MODULES.values() for module in modules]
    while True:
        if waiting and not select.select([connection], [], [], 0)[0]:
            warm((waiting.pop(0),))
            continue
        message, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, STREAMS)
        if not message:
            return None
        request = ForkRequest(**json.loads(message))
        warm([request.function.partition(":")[0]] if request.function else MODULES.get(request.arguments[0], ()))
        if len(os.listdir("/proc/self/task")) > 1:
            answer: dict[str, object] = {"error": "a module has started a thread"}
        else:
            gc.freeze()
            sys._clear_type_cache()  # it holds names: to replace one, a child would write to the page of the old one
            child = _forked()
            if child == 0:
                connection.close()
                _take_streams(streams)
                return request
            answer = {"pid": child}
        for each in streams:
            os.close(each)
        connection.send(json.dumps(answer).encode())


def warm(modules: Sequence[str]) -> None:
    """Import them. One that cannot be imported fails in the child, which has a log for that."""
    for module in modules:
        try:
            import_module(module)
        except Exception:  # noqa: S112
            continue


def _forked() -> int:
    """The pid of a new process; 0 in it. It is a child of whoever adopts orphans, since the one in between ends."""
    reader, writer = os.pipe()
    middle = os.fork()
    if middle == 0:
        child = os.fork()
        if child == 0:
            os.close(reader)
            os.close(writer)
            return 0
        os.write(writer, str(child).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(middle, 0)
    with os.fdopen(reader) as found:
        return int(found.read())


def _take_streams(streams: Sequence[int]) -> None:
    """Make them standard input, output and error."""
    for target, each in enumerate(streams):
        os.dup2(each, target)
        os.close(each)


def become(request: ForkRequest) -> None:
    """Make this process, which was forked, as one that was started: its session, signals and environment."""
    os.setsid()
    for number in _RESET:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.environ.update(request.environ)
    sys.argv = ["shoal", *([request.function] if request.function else request.arguments)]
    show_command(sys.argv)
    gc.enable()


def show_command(words: Sequence[str]) -> None:
    """Let ``ps`` show these words, as far as there is room for them."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[_ARGUMENTS_AT]), int(fields[_ARGUMENTS_AT + 1])
    room = end - begin - 1
    text = b"\0".join(os.fsencode(word) for word in words)[:room]
    ctypes.memset(begin, 0, room)
    ctypes.memmove(begin, text, len(text))


def _run(request: ForkRequest) -> int:
    if not request.function:
        from shoal.app.main import main as run

        return run(request.arguments)
    module, _, name = request.function.partition(":")
    try:
        getattr(import_module(module), name)(*request.arguments)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def main() -> int:
    """Returns in the fork server. A child ends here; taking down its modules would write to all shared pages."""
    os.setsid()  # Ctrl-C is not for this process
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return 0
    become(request)
    code = _run(request)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
