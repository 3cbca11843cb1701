"""``shoal cluster start``: one cluster in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shoal.apiserver.flow.config import FlowConfig
from shoal.app.config import AVAILABLE_COMPONENTS, DEFAULT_PORT, LOOPBACK, ClusterOptions, opened_config
from shoal.app.home import directory
from shoal.app.processes import stop_when_stdin_ends
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
    store: Annotated[
        str,
        typer.Option(
            help="sqlite:///PATH, postgresql://USER@HOST/DATABASE (for several servers) or memory://; "
            "default SQLite in the directory",
            envvar="SHOAL_STORE",
        ),
    ] = "",
    components: Annotated[str, typer.Option(help="comma-separated parts to run in this process")] = _COMPONENTS,
    nodes: Annotated[
        int | None, typer.Option(help="number of nodes, 0 for none; default 1, and 0 for further servers of a cluster")
    ] = None,
    runtime: Annotated[
        str,
        typer.Option(
            help="what pods are: process (of this machine; the default), docker (containers of Docker or podman) or "
            "simulated"
        ),
    ] = "",
    docker_socket: Annotated[
        str,
        typer.Option(
            help="socket of the engine, for --runtime docker; default $DOCKER_HOST, else Docker's, else podman's"
        ),
    ] = "",
    pause_image: Annotated[
        str, typer.Option(help="image that holds a pod's network, for --runtime docker; default: one made here")
    ] = "",
    events: Annotated[
        str,
        typer.Option(
            help="redis://HOST:PORT by which servers of one PostgreSQL hear of writes sooner",
            envvar="SHOAL_EVENTS",
        ),
    ] = "",
    credentials: Annotated[
        str, typer.Option(help="directory of another server of this cluster: use its CA, keys and tokens")
    ] = "",
    server: Annotated[
        str, typer.Option(help="URL of the API server, for components without one; default the kubeconfig's")
    ] = "",
    kubeconfig: Annotated[str, typer.Option(help="credentials for components without an API server of their own")] = "",
    join: Annotated[
        str, typer.Option(help="join file: also run the cluster's agent in this process, for a fleet")
    ] = "",
    edge: Annotated[
        str, typer.Option(help="join file of a navigator: also run the cluster's edge in this process")
    ] = "",
    sharding: Annotated[bool, typer.Option("--sharding", help="also run a shard manager in this process")] = False,
    tls_san: Annotated[
        list[str] | None, typer.Option(help="further name or address in the server's certificate; may be repeated")
    ] = None,
    anonymous_auth: Annotated[
        bool, typer.Option("--anonymous-auth", help="let requests without credentials in as system:anonymous")
    ] = False,
    max_requests_inflight: Annotated[int, typer.Option(help="reads at a time, for all priority levels")] = 400,
    max_mutating_requests_inflight: Annotated[int, typer.Option(help="writes at a time, likewise")] = 200,
    requests_per_second: Annotated[float, typer.Option(help="of one user, while the server is busy")] = 200.0,
    burst: Annotated[float, typer.Option(help="what one user may ask for at once, while the server is busy")] = 500.0,
    audit_policy: Annotated[str, typer.Option(help="audit.k8s.io/v1 Policy file; default: changes and refusals")] = "",
    audit_log: Annotated[str, typer.Option(help="audit log file, or off; default audit.log in the directory")] = "",
    audit_max_size: Annotated[int, typer.Option(help="megabytes after which the audit log is turned over")] = 100,
    audit_max_backups: Annotated[int, typer.Option(help="old audit logs to keep; 0 keeps all")] = 10,
    audit_max_age: Annotated[int, typer.Option(help="days to keep old audit logs; 0 is no limit")] = 0,
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
