"""``shoal krane``: runs the agent of a cluster, and prints the manifests of its account and permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.options import (
    ElectionName,
    HealthHost,
    Kubeconfig,
    KubeContext,
    LogLevel,
    ReloadedConfig,
    StopOnEof,
)
from shoal.app.home import directory
from shoal.cli.apps import new_app

app = new_app("Run the agent of a cluster.", group=True)


@app.command("start")
def start(
    join: Annotated[Path | None, typer.Option(help="join file from `shoal token create --kind agent`")] = None,
    config: ReloadedConfig = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    dir: Annotated[
        Path | None, typer.Option(help="directory for the key and the last known state; default `krane` in $SHOAL_HOME")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="port of health and metrics; 0 for any free port; default 8070")
    ] = None,
    host: HealthHost = None,
    name: ElectionName = None,
    elect: Annotated[
        bool | None,
        typer.Option("--elect/--no-elect", help="use leader election, so that standbys can run"),
    ] = None,
    gateway_image: Annotated[
        str | None,
        typer.Option(help="image of gateways, REGISTRY/NAME:TAG, where an environment names none; has no default"),
    ] = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Start an agent and print `ready` once it runs; SIGTERM or Ctrl-C stops it. Applied workloads keep running.
    SHOAL_KRANE_* variables set the settings too; SIGHUP reads them again."""
    from shoal.app.fleet.start_agent import StartArguments, become

    flags = {
        "join": _absolute(join), "dir": _absolute(dir), "kubeconfig": _text(kubeconfig), "context": context,
        "agent": name, "host": host, "port": port, "elect": elect,
        "gateway_image": gateway_image, "log_level": log_level,
    }  # fmt: skip
    become(
        StartArguments(flags=flags, home=str(directory(None)), config=_absolute(config) or "", stop_on_eof=stop_on_eof)
    )


def _absolute(path: Path | None) -> str | None:
    return str(path.expanduser().absolute()) if path is not None else None


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None


@app.command("manifests")
def manifests(
    namespace: Annotated[str, typer.Option(help="namespace of the agent; default shoal-system")] = "",
    service_account: Annotated[str, typer.Option(help="service account of the agent; default krane")] = "",
) -> None:
    """Print the manifests that an agent needs in its cluster: its service account and RBAC roles. An administrator
    applies them. An agent that joined with its cluster (`shoal cluster join`) gets the same rights by joining again;
    where it joined with --namespaces, these here are more than it has."""
    import yaml

    from shoal.krane.rbac import NAMESPACE, SERVICE_ACCOUNT
    from shoal.krane.rbac import manifests as rights

    made = rights(namespace=namespace or NAMESPACE, service_account=service_account or SERVICE_ACCOUNT)
    typer.echo(yaml.safe_dump_all(made, sort_keys=False, explicit_start=True), nl=False)
