"""``shoal krane``: the agent of a cluster, and what it may do there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.app.home import directory
from shoal.base import logs
from shoal.cli.apps import new_app

app = new_app("Run the agent of a cluster.", group=True)


@app.command("start")
def start(
    join: Annotated[Path | None, typer.Option(help="join file, as `shoal token create --kind agent` prints it")] = None,
    config: Annotated[
        Path | None, typer.Option(help="file with settings, YAML; read again at SIGHUP", envvar="SHOAL_KRANE_CONFIG")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="the cluster; default the agent's own service account, or kubectl's file")
    ] = None,
    context: Annotated[str | None, typer.Option(help="context of the kubeconfig")] = None,
    dir: Annotated[
        Path | None, typer.Option(help="where key and last known state are kept; default `krane` in $SHOAL_HOME")
    ] = None,
    port: Annotated[int | None, typer.Option(help="of health and metrics; 0 for any free one; default 8070")] = None,
    host: Annotated[str | None, typer.Option(help="address of health and metrics; default 127.0.0.1")] = None,
    name: Annotated[
        str | None, typer.Option(help="of this process among its standbys; default made from the host's")
    ] = None,
    elect: Annotated[
        bool | None,
        typer.Option("--elect/--no-elect", help="take part in an election, so that standbys can be started"),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help=f"{', '.join(logs.LEVELS)}; default info", envvar="SHOAL_LOG_LEVEL")
    ] = None,
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start an agent and print `ready` once it runs; SIGTERM or Ctrl-C ends it, what it applied goes on running.
    Settings also come from SHOAL_KRANE_* variables; SIGHUP reads them again."""
    from shoal.app.fleet.start_agent import Start, become

    flags = {
        "join": _absolute(join), "dir": _absolute(dir), "kubeconfig": _text(kubeconfig), "context": context,
        "agent": name, "host": host, "port": port, "elect": elect, "log_level": log_level,
    }  # fmt: skip
    become(Start(flags=flags, home=str(directory(None)), config=_absolute(config) or "", stop_on_eof=stop_on_eof))


def _absolute(path: Path | None) -> str | None:
    return str(path.expanduser().absolute()) if path is not None else None


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


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
