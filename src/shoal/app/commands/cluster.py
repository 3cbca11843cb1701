"""``shoal cluster start``: one cluster in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.apiserver.flow.config import FlowConfig
from shoal.app.config import AVAILABLE_COMPONENTS, DEFAULT_PORT, LOOPBACK, ClusterOptions, opened_config
from shoal.app.home import directory
from shoal.app.processes import start_logs, stop_when_stdin_ends
from shoal.base import logs
from shoal.cli.apps import new_app

app = new_app("Run one Kubernetes-compatible cluster.", group=True)

_COMPONENTS = ",".join(AVAILABLE_COMPONENTS)


@app.command("start")
def start(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help=f"port of the API server; default: the last one used, else {DEFAULT_PORT} or the next free port"
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="address the API server listens on")] = LOOPBACK,
    store: Annotated[
        str,
        typer.Option(
            help="sqlite:///PATH, postgresql://USER@HOST/DATABASE (for several servers) or memory://; "
            "default SQLite in the directory",
            envvar="SHOAL_STORE",
        ),
    ] = "",
    components: Annotated[
        str, typer.Option(help="components to run in this process, separated by commas")
    ] = _COMPONENTS,
    nodes: Annotated[
        int | None, typer.Option(help="number of nodes; default 1, or 0 for an additional server of a cluster")
    ] = None,
    runtime: Annotated[
        str,
        typer.Option(
            help="how pods run: process (on this machine; the default), docker (Docker or podman containers) or "
            "simulated"
        ),
    ] = "",
    docker_socket: Annotated[
        str,
        typer.Option(
            help="container engine socket, for --runtime docker; default $DOCKER_HOST, else Docker's, else podman's"
        ),
    ] = "",
    pause_image: Annotated[
        str, typer.Option(help="image of the pause container, for --runtime docker; default: Shoal builds one")
    ] = "",
    events: Annotated[
        str,
        typer.Option(
            help="redis://HOST:PORT; servers that share a PostgreSQL store notify each other of writes through it",
            envvar="SHOAL_EVENTS",
        ),
    ] = "",
    credentials: Annotated[
        str, typer.Option(help="state directory of another server of this cluster, to use its CA, keys and tokens")
    ] = "",
    server: Annotated[
        str, typer.Option(help="URL of the API server, if this process runs none; default: the kubeconfig's")
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="credentials for the API server, if this process runs none")] = "",
    join: Annotated[
        str, typer.Option(help="join file of a control plane; also runs the cluster's agent in this process")
    ] = "",
    edge: Annotated[
        str, typer.Option(help="join file of a navigator; also runs the cluster's edge in this process")
    ] = "",
    sharding: Annotated[bool, typer.Option("--sharding", help="also run a shard manager in this process")] = False,
    tls_san: Annotated[
        list[str] | None,
        typer.Option(help="additional DNS name or IP address in the server's certificate; may be repeated"),
    ] = None,
    anonymous_auth: Annotated[
        bool, typer.Option("--anonymous-auth", help="accept requests without credentials as system:anonymous")
    ] = False,
    max_requests_inflight: Annotated[
        int, typer.Option(help="limit of concurrent reads over all priority levels")
    ] = 400,
    max_mutating_requests_inflight: Annotated[
        int, typer.Option(help="limit of concurrent writes over all priority levels")
    ] = 200,
    requests_per_second: Annotated[
        float, typer.Option(help="request rate of one user while the server is busy")
    ] = 200.0,
    burst: Annotated[float, typer.Option(help="request burst of one user while the server is busy")] = 500.0,
    audit_policy: Annotated[
        str, typer.Option(help="audit.k8s.io/v1 Policy file; default: record writes and denied requests")
    ] = "",
    audit_log: Annotated[str, typer.Option(help="audit log file, or off; default audit.log in the directory")] = "",
    audit_max_size: Annotated[int, typer.Option(help="megabytes after which the audit log is rotated")] = 100,
    audit_max_backups: Annotated[int, typer.Option(help="old audit logs to keep; 0 keeps all")] = 10,
    audit_max_age: Annotated[int, typer.Option(help="days to keep old audit logs; 0 for no limit")] = 0,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start a cluster and print `ready URL` when it serves requests; SIGTERM or Ctrl-C stops it."""
    start_logs(log_level)
    options = ClusterOptions(
        dir=directory(dir),
        port=port,
        host=host,
        store=store,
        nodes=nodes if nodes is not None else 0 if credentials else 1,
        runtime=runtime,
        docker_socket=docker_socket,
        pause_image=pause_image,
        events=events,
        credentials=credentials,
        components=components,
        server=server,
        kubeconfig=kubeconfig,
        join=join,
        edge=edge,
        sharding=sharding,
        extra_hosts=tuple(tls_san or ()),
        anonymous=anonymous_auth,
        flow=FlowConfig(
            max_requests_in_flight=max_requests_inflight,
            max_mutating_requests_in_flight=max_mutating_requests_inflight,
            requests_per_second=requests_per_second,
            burst=burst,
            flow_requests_per_second=2 * requests_per_second,
            flow_burst=2 * burst,
        ),
        audit_policy=audit_policy,
        audit_log=audit_log,
        audit_max_size=audit_max_size,
        audit_max_backups=audit_max_backups,
        audit_max_age=audit_max_age,
    )
    with opened_config(options) as config:
        if stop_on_eof:
            stop_when_stdin_ends()

        from uvloop import run

        from shoal.app.cluster import run_cluster

        run(run_cluster(config))
