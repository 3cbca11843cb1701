"""``shoal krane``: the agent of a cluster, and what it may do there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.home import directory
from shoal.app.processes import run_until_signal, stop_when_stdin_ends
from shoal.base import logs
from shoal.cli.apps import new_app

app = new_app("Run the agent of a cluster.", group=True)


@app.command("start")
def start(
    join: Annotated[Path, typer.Option(help="join file, as `shoal token create --kind agent` prints it")],
    kubeconfig: Annotated[
        Path | None, typer.Option(help="the cluster; default the agent's own service account, or kubectl's file")
    ] = None,
    context: Annotated[str, typer.Option(help="context of the kubeconfig")] = "",
    dir: Annotated[
        Path | None, typer.Option(help="where key and last known state are kept; default `krane` in $SHOAL_HOME")
    ] = None,
    port: Annotated[int, typer.Option(help="of health and metrics; 0 for any free one")] = 8070,
    host: Annotated[str, typer.Option(help="address of health and metrics")] = "127.0.0.1",
    name: Annotated[str, typer.Option(help="of this process among its standbys; default made from the host's")] = "",
    elect: Annotated[bool, typer.Option(help="take part in an election, so that standbys can be started")] = True,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start an agent and print `ready` once it runs; SIGTERM or Ctrl-C ends it. What it applied goes on running."""
    from shoal.krane.config import KraneConfig, read_join_file

    logs.configure(level=log_level)
    config = KraneConfig(
        join=join.expanduser().absolute(),
        dir=dir.expanduser().absolute() if dir is not None else directory(None) / "krane",
        kubeconfig=kubeconfig,
        context=context,
        agent=name,
        host=host,
        port=port,
        elect=elect,
    )
    read_join_file(config.join)
    if stop_on_eof:
        stop_when_stdin_ends()
    from shoal.app.fleet.agent import run_krane

    def serve(stop: asyncio.Event) -> object:
        return run_krane(config, stop, lambda: print("ready", flush=True))

    run_until_signal(serve)


@app.command("manifests")
def manifests(
    namespace: Annotated[str, typer.Option(help="of the agent; default shoal-system")] = "",
    service_account: Annotated[str, typer.Option(help="of the agent; default krane")] = "",
) -> None:
    """Print what an administrator applies to a cluster before an agent can run there: its account and its rights."""
    import yaml

    from shoal.krane.rbac import NAMESPACE, SERVICE_ACCOUNT
    from shoal.krane.rbac import manifests as rights

    made = rights(namespace=namespace or NAMESPACE, service_account=service_account or SERVICE_ACCOUNT)
    typer.echo(yaml.safe_dump_all(made, sort_keys=False, explicit_start=True), nl=False)
