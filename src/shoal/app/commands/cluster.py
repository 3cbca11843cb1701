"""``shoal cluster start``: one cluster in this process."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.config import AVAILABLE_COMPONENTS, DEFAULT_PORT, LOOPBACK, ClusterOptions, opened_config
from shoal.app.home import directory
from shoal.base import logs
from shoal.cli.apps import new_app

app = new_app("Run one Kubernetes-compatible cluster.", group=True)

_COMPONENTS = ",".join(AVAILABLE_COMPONENTS)


@app.command("start")
def start(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    port: Annotated[
        int | None, typer.Option(help=f"API port; default the last one used, else {DEFAULT_PORT} or the next free one")
    ] = None,
    host: Annotated[str, typer.Option(help="address the API server binds")] = LOOPBACK,
    store: Annotated[str, typer.Option(help="sqlite:///PATH or memory://; default SQLite in the directory")] = "",
    components: Annotated[str, typer.Option(help=f"comma-separated; today: {_COMPONENTS}")] = _COMPONENTS,
    nodes: Annotated[int, typer.Option(help="number of nodes; only 0 today")] = 0,
    runtime: Annotated[str, typer.Option(help="what runs pods; not available yet")] = "",
    events: Annotated[str, typer.Option(help="Redis for events; not available yet")] = "",
    server: Annotated[str, typer.Option(help="another cluster's API server; not available yet")] = "",
    kubeconfig: Annotated[str, typer.Option(help="credentials for --server; not available yet")] = "",
    tls_san: Annotated[
        list[str] | None, typer.Option(help="further name or address in the server's certificate; may be repeated")
    ] = None,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start a cluster and print `ready URL` when it answers; SIGTERM or Ctrl-C ends it."""
    logs.configure(level=log_level)
    options = ClusterOptions(
        dir=directory(dir),
        port=port,
        host=host,
        store=store,
        nodes=nodes,
        runtime=runtime,
        events=events,
        components=components,
        server=server,
        kubeconfig=kubeconfig,
        extra_hosts=tuple(tls_san or ()),
    )
    with opened_config(options) as config:
        if stop_on_eof:
            stop_when_stdin_ends()

        from uvloop import run

        from shoal.app.cluster import run_cluster

        run(run_cluster(config))


def stop_when_stdin_ends() -> None:
    """End with the process that holds the other end of our standard input, however that one ends."""

    def wait() -> None:
        # Not through sys.stdin: its lock, held by this thread for ever, would break the interpreter's own exit.
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stop-on-eof", daemon=True).start()
