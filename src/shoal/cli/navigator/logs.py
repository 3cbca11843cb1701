"""``shoal logs``: logs of the pods of an app in all clusters."""

from __future__ import annotations

import queue
import sys
import threading
from contextlib import suppress
from typing import Annotated, Any

import typer

from shoal.cli.apps import new_app
from shoal.cli.durations import seconds_of
from shoal.cli.navigator.pods import find_pods
from shoal.cli.navigator.session import Cluster, Namespace, opened, path_of
from shoal.cli.options import ContextName
from shoal.cli.rest import Rest, TextStream
from shoal.errors import ConfigError, ShoalError

app = new_app("Show the logs of an app's pods in all clusters.")

MOST_STREAMS = 50
_PROXY = "istio-proxy"
_POLL_S = 0.5


@app.command()
def logs(
    name: Annotated[
        str,
        typer.Argument(
            metavar="APP|POD", help="an app, a workload or a pod; NAMESPACE/NAME, or PROJECT/ENVIRONMENT/APP"
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="follow the logs")] = False,
    cluster: Cluster = "",
    namespace: Namespace = "",
    container: Annotated[
        str, typer.Option("--container", "-c", help="container; default: the first that is not a proxy")
    ] = "",
    tail: Annotated[int, typer.Option(min=-1, help="number of last lines of each pod; -1 for all")] = -1,
    since: Annotated[str, typer.Option(help="only lines of the last 10m, 2h")] = "",
    previous: Annotated[bool, typer.Option("--previous", "-p", help="logs of the container's previous run")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="show the time of each line")] = False,
    context: ContextName = "",
) -> None:
    """Show the logs of one pod, or of all pods of an app with the pod's name before each line."""
    since_s = seconds_of("--since", since) if since else 0
    with opened(context) as rest:
        pods = find_pods(rest, name, cluster=cluster, namespace=namespace)
        if len(pods) > MOST_STREAMS:
            raise ConfigError(
                f"{name!r} has {len(pods)} pods, more than the limit of {MOST_STREAMS}; use --cluster, or name a pod"
            )
        params = {
            "follow": follow, "previous": previous, "timestamps": timestamps, "tail": str(tail) if tail >= 0 else None,
            "since": since_s or None,
        }  # fmt: skip
        sources = [_Source(rest, pod, {**params, "container": container or _container(pod)}) for pod in pods]
        failed = _print_one(sources[0]) if len(sources) == 1 else _print_all(sources)
    if failed:
        raise typer.Exit(1)


def _container(pod: dict[str, Any]) -> str:
    names = list(pod["container"] or ())
    own = [each for each in names if each != _PROXY]
    return str((own or names)[0]) if len(names) > 1 else ""


class _Source:
    """The log of one pod."""

    def __init__(self, rest: Rest, pod: dict[str, Any], params: dict[str, Any]) -> None:
        self.label = f"{pod['cluster']}/{pod['name']}"
        path = path_of("pods", pod["cluster"], pod["namespace"], pod["name"], "logs")
        self.stream: TextStream = rest.stream(path, params=params)


def _print_one(source: _Source) -> bool:
    for part in source.stream:
        sys.stdout.write(part.decode(errors="replace"))
        sys.stdout.flush()
    return False


def _print_all(sources: list[_Source]) -> bool:
    """Print lines as they arrive; return whether a log failed. The logs of the other pods continue."""
    lines: queue.Queue[tuple[_Source, str | ShoalError | None]] = queue.Queue(maxsize=10_000)
    threads = [
        threading.Thread(target=_read, args=(each, lines), name=f"logs {each.label}", daemon=True) for each in sources
    ]
    for thread in threads:
        thread.start()
    width = max(len(each.label) for each in sources)
    left, failed = len(sources), False
    try:
        while left:
            try:
                source, line = lines.get(timeout=_POLL_S)  # a wait without a timeout cannot be interrupted
            except queue.Empty:
                continue
            if line is None:
                left -= 1
            elif isinstance(line, ShoalError):
                failed = True
                sys.stderr.write(f"{source.label}: {line}\n")
            else:
                sys.stdout.write(f"{source.label:<{width}} | {line}\n")
                sys.stdout.flush()
    finally:
        _end(sources, threads, lines)
    return failed


def _end(sources: list[_Source], threads: list[threading.Thread], lines: queue.Queue[Any]) -> None:
    for source, thread in zip(sources, threads, strict=True):
        while thread.is_alive():
            source.stream.close()
            with suppress(queue.Empty):  # the thread may wait for space in the queue
                lines.get_nowait()
            thread.join(0.05)


def _read(source: _Source, lines: queue.Queue[tuple[_Source, str | ShoalError | None]]) -> None:
    rest = ""
    try:
        for part in source.stream:
            *whole, rest = (rest + part.decode(errors="replace")).split("\n")
            for line in whole:
                lines.put((source, line))
    except ShoalError as error:
        lines.put((source, error))
    if rest:
        lines.put((source, rest))
    lines.put((source, None))
