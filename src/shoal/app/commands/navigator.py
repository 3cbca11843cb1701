"""``shoal navigator``: runs the manager, which keeps the view of all clusters, and the edge of a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.navigator_token import app as token_app
from shoal.app.commands.options import (
    CertificateNames,
    ElectionName,
    HealthHost,
    Kubeconfig,
    KubeContext,
    LogLevel,
    StopOnEof,
)
from shoal.app.commands.rotate_ca import MONTH, Overlap, rotate_ca
from shoal.app.config import LOOPBACK
from shoal.app.home import directory
from shoal.app.processes import run_until_signal, say_ready, start_logs, stop_when_stdin_ends
from shoal.app.settings import EDGE, NAVIGATOR, read_settings
from shoal.cli.apps import new_app
from shoal.cli.navigator.edges import app as edges_app
from shoal.cli.navigator.forget import forget

app = new_app("Run the navigator, the live view of all clusters.", group=True)


@app.command("edge")
def edge(
    join: Annotated[Path | None, typer.Option(help="join file from `shoal navigator token create`")] = None,
    config: Annotated[Path | None, typer.Option(help="settings file, YAML or JSON; default $SHOAL_EDGE_CONFIG")] = None,
    kubeconfig: Kubeconfig = None,
    context: KubeContext = None,
    name: ElectionName = None,
    port: Annotated[
        int | None, typer.Option(help="port of health and metrics; 0 for any free port; default 8071")
    ] = None,
    host: HealthHost = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Start the edge of a cluster and print `ready` once it runs; SIGTERM or Ctrl-C stops it. Settings also come
    from a file and from SHOAL_EDGE_* variables; flags win. SIGHUP reads them again."""
    from shoal.app.fleet.reloading import Reloading
    from shoal.app.navigator.edge import EdgeSettings, run_edge
    from shoal.navigator.edge.config import read_join_file
    from shoal.navigator.edge.options import RUN_TIME

    flags = {
        "join": join, "kubeconfig": kubeconfig, "context": context, "edge": name,
        "host": host, "port": port, "log_level": log_level,
    }  # fmt: skip

    def read() -> EdgeSettings:
        settings: EdgeSettings = read_settings(EDGE, flags, file=config)
        return settings

    settings = read()
    start_logs(settings.log_level)
    read_join_file(settings.join)
    if stop_on_eof:
        stop_when_stdin_ends()
    reloading = Reloading(read, settings, RUN_TIME)

    def serve(stop: asyncio.Event) -> object:
        return run_edge(settings, stop, say_ready, reloading)

    run_until_signal(serve, reloading, traced="shoal-navigator-edge")


@app.command("rotate-ca")
def rotate_authority(
    dir: Annotated[
        Path | None, typer.Option(help="state directory; default `navigator` in $SHOAL_HOME, else in ~/.shoal")
    ] = None,
    overlap: Overlap = MONTH,
) -> None:
    """Replace the certificate authority of the navigator, with a time in which both are trusted."""
    rotate_ca(directory(None) / "navigator" if dir is None else directory(dir), overlap)


@app.command("manifests")
def manifests(
    namespace: Annotated[
        list[str] | None,
        typer.Option(help="namespace that the edge may read, instead of the whole cluster; may be repeated"),
    ] = None,
    edge_namespace: Annotated[str, typer.Option(help="namespace of the edge; default shoal-system")] = "",
    service_account: Annotated[str, typer.Option(help="service account of the edge; default navigator-edge")] = "",
    revision: Annotated[
        list[str] | None, typer.Option(help="Istio revision whose mesh config the edge reads; may be repeated")
    ] = None,
) -> None:
    """Print the manifests that an edge needs in its cluster: its service account and RBAC roles. An administrator
    applies them. With --namespace these are Roles in the named namespaces; name the same ones in the edge's settings
    (namespaces.include), and the cluster in its join file. An edge that joined with its cluster (`shoal cluster join`)
    gets its rights by joining again; where it joined with --namespaces, name the same ones here."""
    import yaml

    from shoal.errors import ConfigError
    from shoal.navigator.edge.rbac import NAMESPACE, SERVICE_ACCOUNT
    from shoal.navigator.edge.rbac import manifests as rights
    from shoal.navigator.edge.reporting import is_pattern

    for name in namespace or ():
        if is_pattern(name):
            raise ConfigError(
                f"namespace is {name!r}: a Role needs the name of a namespace; for patterns leave out --namespace"
            )
    made = rights(
        edge_namespace=edge_namespace or NAMESPACE,
        namespaces=namespace or (),
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
        int | None,
        typer.Option(
            help="port of edges and the REST API; default: the last one used, else 7410 or the next free port"
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help=f"address to listen on; default {LOOPBACK}")] = None,
    database: Annotated[
        str | None,
        typer.Option(
            help="sqlite:///PATH or postgresql://USER@HOST/DATABASE (can be the control plane's); default SQLite "
            "in the directory"
        ),
    ] = None,
    control_dir: Annotated[
        Path | None, typer.Option(help="state directory of the control plane, to show which app a pod belongs to")
    ] = None,
    grant_key: Annotated[
        Path | None,
        typer.Option(
            help="file with the key of the control plane's grants, for users of its page; default grant.key in "
            "--control-dir"
        ),
    ] = None,
    tls_san: CertificateNames = None,
    advertise_url: Annotated[
        list[str] | None,
        typer.Option(
            help="URL at which edges and users reach it, in its certificate, in join files and contexts; may be "
            "repeated, preferred first; default: its address on this machine"
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="settings file, YAML or JSON; default $SHOAL_NAVIGATOR_CONFIG")
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(help="seconds after a disconnect in which only the same edge process can reconnect; default 10"),
    ] = None,
    retention: Annotated[str, typer.Option(help="how long to keep history, for example 24h; default 7d")] = "",
    max_message_bytes: Annotated[
        int | None, typer.Option(help="size limit of a message from an edge; default 4194304")
    ] = None,
    keep_alive: Annotated[
        float | None, typer.Option(help="seconds without a message after which the manager probes an edge; default 15")
    ] = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Start the manager and print `ready URL` when it serves requests; SIGTERM or Ctrl-C stops it. Settings also
    come from a file and from SHOAL_NAVIGATOR_* variables; flags win."""
    from shoal.app.home import directory
    from shoal.app.navigator.config import opened_config
    from shoal.cli.durations import seconds_of

    flags = {
        "dir": dir, "port": port, "host": host, "database": database,
        "tls_san": tuple(tls_san) if tls_san else None, "control_dir": control_dir,
        "grant_key": grant_key,
        "grace_s": grace, "retention_s": seconds_of("retention", retention) if retention else None,
        "max_message_bytes": max_message_bytes, "keep_alive_s": keep_alive, "log_level": log_level,
        "advertise_url": tuple(advertise_url) if advertise_url else None,
    }  # fmt: skip
    options = read_settings(NAVIGATOR, flags, file=config, home=directory(None))
    start_logs(options.log_level)
    with opened_config(options) as opened:
        if stop_on_eof:
            stop_when_stdin_ends()
        from shoal.app.fleet.context_file import home_of, write_context
        from shoal.app.navigator.manager import run_manager

        def ready() -> None:
            say_ready(opened.url)
            if not stop_on_eof and (home := home_of(opened.dir, "navigator")) is not None:
                write_context(home)

        def serve(stop: asyncio.Event) -> object:
            return run_manager(opened, stop, ready)

        run_until_signal(serve, traced="shoal-navigator")


app.command("forget")(forget)
app.add_typer(token_app, name="token")
app.add_typer(edges_app, name="edges")
