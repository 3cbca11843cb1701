"""``shoal navigator``: the manager that has all clusters in one view, and the edge of each cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.navigator_token import app as token_app
from shoal.app.config import LOOPBACK
from shoal.app.processes import run_until_signal, stop_when_stdin_ends
from shoal.base import logs
from shoal.cli.apps import new_app

app = new_app("See all clusters in one live view.", group=True)


@app.command("edge")
def edge(
    join: Annotated[Path, typer.Option(help="join file, as `shoal navigator token create` prints it")],
    config: Annotated[Path | None, typer.Option(help="YAML file with further settings")] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="the cluster; default the edge's own service account, or kubectl's file")
    ] = None,
    context: Annotated[str | None, typer.Option(help="context of the kubeconfig")] = None,
    name: Annotated[
        str | None, typer.Option(help="of this process among its standbys; default made from the host's")
    ] = None,
    port: Annotated[int | None, typer.Option(help="of health and metrics; 0 for any free one; default 8071")] = None,
    host: Annotated[str | None, typer.Option(help="address of health and metrics")] = None,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start the edge of a cluster and print `ready` once it runs; SIGTERM or Ctrl-C ends it. Every setting can also be
    an environment variable: SHOAL_EDGE_ and its name."""
    import os

    from shoal.base.settings import load
    from shoal.navigator.edge.config import EdgeConfig, read_join_file

    logs.configure(level=log_level)
    flags = {
        "join": join.expanduser().absolute(), "kubeconfig": kubeconfig, "context": context, "edge": name,
        "host": host, "port": port,
    }  # fmt: skip
    settings = load(EdgeConfig, file=config, environ=os.environ, prefix="SHOAL_EDGE_", flags=flags)
    read_join_file(settings.join)
    if stop_on_eof:
        stop_when_stdin_ends()
    from shoal.app.navigator.edge import run_edge

    def serve(stop: asyncio.Event) -> object:
        return run_edge(settings, stop, lambda: print("ready", flush=True))

    run_until_signal(serve)


@app.command("manifests")
def manifests(
    namespace: Annotated[str, typer.Option(help="of the edge; default shoal-system")] = "",
    service_account: Annotated[str, typer.Option(help="of the edge; default navigator-edge")] = "",
    revision: Annotated[
        list[str] | None, typer.Option(help="revision of Istio whose mesh config is read; may be repeated")
    ] = None,
) -> None:
    """Print what an administrator applies to a cluster before an edge can run there: its account and its rights."""
    import yaml

    from shoal.navigator.edge.rbac import NAMESPACE, SERVICE_ACCOUNT
    from shoal.navigator.edge.rbac import manifests as rights

    made = rights(
        namespace=namespace or NAMESPACE,
        service_account=service_account or SERVICE_ACCOUNT,
        revisions=tuple(revision or ()),
    )
    typer.echo(yaml.safe_dump_all(made, sort_keys=False, explicit_start=True), nl=False)


@app.command("manager")
def manager(
    dir: Annotated[
        Path | None, typer.Option(help="state directory; default `navigator` in $SHOAL_HOME, else in ~/.shoal")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="of edges and REST API; default the last one used, else 7410 or the next free")
    ] = None,
    host: Annotated[str, typer.Option(help="address to bind")] = LOOPBACK,
    database: Annotated[
        str,
        typer.Option(
            help="sqlite:///PATH or postgresql://USER@HOST/DATABASE, which may be the control plane's; default SQLite "
            "in the directory",
            envvar="SHOAL_NAVIGATOR_DATABASE",
        ),
    ] = "",
    control_dir: Annotated[
        Path | None, typer.Option(help="directory of the control plane whose apps are joined with pods")
    ] = None,
    tls_san: Annotated[
        list[str] | None, typer.Option(help="further name or address in the certificate; may be repeated")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with further settings")] = None,
    grace: Annotated[
        float | None, typer.Option(help="seconds in which only the same edge may return; default 10")
    ] = None,
    retention: Annotated[str, typer.Option(help="how long the past is kept, for example 24h; default 7d")] = "",
    max_message_bytes: Annotated[int | None, typer.Option(help="largest message of an edge; default 4194304")] = None,
    keep_alive: Annotated[
        float | None, typer.Option(help="seconds of silence after which an edge is asked; default 15")
    ] = None,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start the manager and print `ready URL` when it answers; SIGTERM or Ctrl-C ends it. Every setting can also be an
    environment variable: SHOAL_NAVIGATOR_ and its name."""
    import os

    from shoal.app.home import directory
    from shoal.app.navigator.config import ManagerOptions, opened_config
    from shoal.base.settings import load
    from shoal.cli.durations import seconds_of
    from shoal.navigator.manager.config import ManagerConfig

    logs.configure(level=log_level)
    flags = {
        "grace_s": grace, "retention_s": seconds_of("retention", retention) if retention else None,
        "max_message_bytes": max_message_bytes, "keep_alive_s": keep_alive,
    }  # fmt: skip
    options = ManagerOptions(
        dir=dir.expanduser().absolute() if dir is not None else directory(None) / "navigator",
        port=port,
        host=host,
        database=database,
        extra_hosts=tuple(tls_san or ()),
        control=control_dir.expanduser().absolute() if control_dir is not None else None,
        settings=load(ManagerConfig, file=config, environ=os.environ, prefix="SHOAL_NAVIGATOR_", flags=flags),
    )
    with opened_config(options) as opened:
        if stop_on_eof:
            stop_when_stdin_ends()
        from shoal.app.navigator.manager import run_manager

        def serve(stop: asyncio.Event) -> object:
            return run_manager(opened, stop, lambda: print(f"ready {opened.url}", flush=True))

        run_until_signal(serve)


app.add_typer(token_app, name="token")
