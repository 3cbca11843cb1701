"""``shoal cluster``: runs one cluster in this process; Kubernetes clusters join the fleet and leave it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.cluster_join import join, leave
from shoal.app.commands.options import LogLevel, StopOnEof
from shoal.app.commands.rotate_ca import MONTH, Overlap, rotate_ca
from shoal.app.config import AVAILABLE_COMPONENTS, DEFAULT_PORT, LOOPBACK, opened_config
from shoal.app.home import directory
from shoal.app.processes import run_loop, start_logs, stop_when_stdin_ends
from shoal.app.settings import CLUSTER, read_settings
from shoal.cli.apps import new_app

app = new_app("Let Kubernetes clusters join the fleet, or run one Kubernetes-compatible cluster.", group=True)
app.command("join")(join)
app.command("leave")(leave)

_COMPONENTS = ",".join(AVAILABLE_COMPONENTS)


@app.command("start")
def start(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    config: Annotated[
        Path | None, typer.Option(help="settings file, YAML or JSON; default $SHOAL_CLUSTER_CONFIG")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            help=f"port of the API server; default: the last one used, else {DEFAULT_PORT} or the next free port"
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help=f"address the API server listens on; default {LOOPBACK}")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="sqlite:///PATH, postgresql://USER@HOST/DATABASE (for several servers) or memory://; "
            "default $SHOAL_STORE, else SQLite in the directory"
        ),
    ] = None,
    components: Annotated[
        str | None, typer.Option(help=f"components to run in this process, separated by commas; default {_COMPONENTS}")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(help="number of nodes; default 1, or 0 for an additional server of a cluster")
    ] = None,
    node_label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="label of the nodes; may be repeated")
    ] = None,
    node_taint: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE:EFFECT", help="taint that new nodes register with; may be repeated"),
    ] = None,
    node_cpu: Annotated[str | None, typer.Option(help="CPUs of each node; default: the machine's")] = None,
    node_memory: Annotated[str | None, typer.Option(help="memory of each node; default: the machine's")] = None,
    node_pods: Annotated[int | None, typer.Option(help="largest number of pods on a node; default 110")] = None,
    node_network: Annotated[
        str | None,
        typer.Option(
            help="/16 of this machine for nodes and pods; default: a loopback network, which other "
            "Kubernetes refuses in EndpointSlices"
        ),
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            help="how pods run: process (on this machine; the default), sandbox (isolated on this machine), docker "
            "(Docker or podman containers) or simulated"
        ),
    ] = None,
    docker_socket: Annotated[
        str | None,
        typer.Option(
            help="container engine socket, for --runtime docker; default $DOCKER_HOST, else Docker's, else podman's"
        ),
    ] = None,
    pause_image: Annotated[
        str | None, typer.Option(help="image of the pause container, for --runtime docker; default: Shoal builds one")
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(
            help="redis://HOST:PORT; servers that share a PostgreSQL store notify each other of writes through it; "
            "default $SHOAL_EVENTS"
        ),
    ] = None,
    credentials: Annotated[
        str | None,
        typer.Option(help="state directory of another server of this cluster, to use its CA, keys and tokens"),
    ] = None,
    server: Annotated[
        str | None, typer.Option(help="URL of the API server, if this process runs none; default: the kubeconfig's")
    ] = None,
    kubeconfig: Annotated[
        str | None, typer.Option(help="credentials for the API server, if this process runs none")
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="join file of a control plane; also runs the cluster's agent in this process")
    ] = None,
    edge: Annotated[
        str | None, typer.Option(help="join file of a navigator; also runs the cluster's edge in this process")
    ] = None,
    sharding: Annotated[
        bool | None, typer.Option("--sharding", help="also run a shard manager in this process")
    ] = None,
    lock: Annotated[
        str | None,
        typer.Option(help="redis://HOST:PORT that elects scheduler and controllers; default: Leases elect them"),
    ] = None,
    election_lease: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="how long a leader's lock lasts without renewal; default 15")
    ] = None,
    election_renew_deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="how long a leader tries to renew before it stops; default 10"),
    ] = None,
    election_retry: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="how often the leader renews and the others try; default 5"),
    ] = None,
    node_grace: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="a node without a heartbeat for this long is lost; default 50"),
    ] = None,
    scheduler_profile: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help='another schedulerName and what differs, such as "batch NodeResourcesFit=5 -ImageLocality"; may be '
            "repeated",
        ),
    ] = None,
    service_cidr: Annotated[
        str | None,
        typer.Option(help="range of the addresses of Services, for simulated or no nodes; set it at the first start"),
    ] = None,
    dns_upstream: Annotated[
        bool | None,
        typer.Option(
            "--dns-upstream",
            help="for runtime sandbox: pass names outside of the cluster on to this machine's DNS servers",
        ),
    ] = None,
    event_ttl: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="how long Events are kept after their last write; default 3600"),
    ] = None,
    resync: Annotated[
        float | None,
        typer.Option(
            help="seconds after which components compare their caches with the API server; 0: never; default 600"
        ),
    ] = None,
    health_host: Annotated[
        str | None,
        typer.Option(help="address of health and metrics, for a process without an API server; default 127.0.0.1"),
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option(help="port of health and metrics, for a process without an API server; default 0: none"),
    ] = None,
    http2: Annotated[
        str | None, typer.Option(help="whether the API server offers HTTP/2: auto (the default), on or off")
    ] = None,
    tls_san: Annotated[
        list[str] | None,
        typer.Option(help="additional DNS name or IP address in the server's certificate; may be repeated"),
    ] = None,
    anonymous_auth: Annotated[
        bool | None, typer.Option("--anonymous-auth", help="accept requests without credentials as system:anonymous")
    ] = None,
    max_requests_inflight: Annotated[
        int | None, typer.Option(help="limit of concurrent reads over all priority levels; default 400")
    ] = None,
    max_mutating_requests_inflight: Annotated[
        int | None, typer.Option(help="limit of concurrent writes over all priority levels; default 200")
    ] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(help="request rate of one user while the server is busy; default 200")
    ] = None,
    burst: Annotated[
        float | None, typer.Option(help="request burst of one user while the server is busy; default 500")
    ] = None,
    audit_policy: Annotated[
        str | None, typer.Option(help="audit.k8s.io/v1 Policy file; default: record writes and denied requests")
    ] = None,
    audit_log: Annotated[
        str | None, typer.Option(help="audit log file, or off; default audit.log in the directory")
    ] = None,
    audit_max_size: Annotated[
        int | None, typer.Option(help="megabytes after which the audit log is rotated; default 100")
    ] = None,
    audit_max_backups: Annotated[
        int | None, typer.Option(help="old audit logs to keep; 0 keeps all; default 10")
    ] = None,
    audit_max_age: Annotated[int | None, typer.Option(help="days to keep old audit logs; default 0, no limit")] = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Start a cluster and print `ready URL` when it serves requests; SIGTERM or Ctrl-C stops it. Settings also come
    from a file and from SHOAL_CLUSTER_* variables; flags win."""
    flags = {
        "dir": dir, "port": port, "host": host, "http2": http2, "store": store, "nodes": nodes, "runtime": runtime,
        "docker_socket": docker_socket, "pause_image": pause_image, "events": events, "credentials": credentials,
        "components": components, "server": server, "kubeconfig": kubeconfig, "join": join, "edge": edge,
        "sharding": sharding, "lock": lock, "election.lease_s": election_lease,
        "election.renew_deadline_s": election_renew_deadline, "election.retry_s": election_retry,
        "node.labels": _list(node_label), "node.taints": _list(node_taint), "node.cpu": node_cpu,
        "node.memory": node_memory, "node.pods": node_pods, "node.network": node_network,
        "scheduler_profiles": _list(scheduler_profile), "dns_upstream": dns_upstream,
        "node_lifecycle.grace_s": node_grace, "service_cidr": service_cidr, "event_ttl_s": event_ttl,
        "resync_s": resync, "health_host": health_host, "health_port": health_port,
        "tls_san": _list(tls_san), "anonymous_auth": anonymous_auth,
        "flow.max_requests_in_flight": max_requests_inflight,
        "flow.max_mutating_requests_in_flight": max_mutating_requests_inflight,
        "flow.requests_per_second": requests_per_second, "flow.flow_requests_per_second": _twice(requests_per_second),
        "flow.burst": burst, "flow.flow_burst": _twice(burst),
        "audit_policy": audit_policy, "audit_log": audit_log, "audit_max_size": audit_max_size,
        "audit_max_backups": audit_max_backups, "audit_max_age": audit_max_age, "log_level": log_level,
    }  # fmt: skip
    options = read_settings(CLUSTER, flags, file=config, home=directory(None))
    start_logs(options.log_level)
    with opened_config(options) as opened:
        if stop_on_eof:
            stop_when_stdin_ends()

        from shoal.app.cluster import run_cluster
        from shoal.base import tracing

        finish = tracing.configure(os.environ, service="shoal-cluster")
        try:
            run_loop(run_cluster(opened))
        finally:
            finish()


@app.command("rotate-ca")
def rotate_authority(
    dir: Annotated[Path | None, typer.Option(help="state directory; default $SHOAL_HOME, else ~/.shoal")] = None,
    overlap: Overlap = MONTH,
) -> None:
    """Replace the cluster's certificate authority, with a time in which both are trusted."""
    from shoal.app.commands.token import cluster_directory

    rotate_ca(cluster_directory(directory(dir)), overlap)


def _list(values: list[str] | None) -> tuple[str, ...] | None:
    return tuple(values) if values else None


def _twice(limit: float | None) -> float | None:
    """The limit of a flow: twice that of a user."""
    return None if limit is None else 2 * limit
