"""``shoal shard``: runs the shard manager, workers and proxies, and prints their manifests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.app.commands.options import ElectionName, HealthHost, Kubeconfig, KubeContext, LogLevel, StopOnEof
from shoal.app.processes import run_until_signal, say_ready, start_logs, stop_when_stdin_ends
from shoal.app.settings import SHARD_MANAGER, SHARD_PROXY, SHARD_WORKER, read_settings
from shoal.cli.apps import new_app
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.sharding.rbac import TargetKind

app = new_app("Run a controller as several active workers.", group=True)


@app.command("manager")
def manager(
    kubeconfig: Kubeconfig = None,
    config: Annotated[
        Path | None, typer.Option(help="settings file, YAML or JSON; default $SHOAL_SHARD_MANAGER_CONFIG")
    ] = None,
    context: KubeContext = None,
    namespace: Annotated[
        str | None, typer.Option(help="namespace of the leader election's Lease; default shoal-system")
    ] = None,
    host: HealthHost = None,
    port: Annotated[
        int | None, typer.Option(help="port of health and metrics; 0 for any free port; default 8060")
    ] = None,
    name: ElectionName = None,
    elect: Annotated[
        bool | None,
        typer.Option("--elect/--no-elect", help="use leader election, so that replicas can run; default on"),
    ] = None,
    election_lease: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="how long a leader's Lease lasts without renewal; default 15")
    ] = None,
    election_renew_deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="how long a leader tries to renew before it stops; default 10"),
    ] = None,
    election_retry: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="how often the leader renews and the others try; default 2"),
    ] = None,
    install: Annotated[
        bool | None, typer.Option("--install/--no-install", help="apply the CustomResourceDefinitions first")
    ] = None,
    worker_image: Annotated[
        str | None, typer.Option(help="image of built-in workers; default: the one that Shoal's own nodes know")
    ] = None,
    webhook_network: Annotated[
        list[str] | None,
        typer.Option(
            help="network, as CIDR, of loopback or link-local addresses that webhooks of ShardConfigs may have; "
            "may be repeated; default: none"
        ),
    ] = None,
    webhook_port: Annotated[
        int | None,
        typer.Option(help="port of the webhook that assigns slots at admission; default 0: only the sweep does"),
    ] = None,
    webhook_certificate: Annotated[
        Path | None, typer.Option(help="certificate of the webhook, PEM; read again when it changes")
    ] = None,
    webhook_key: Annotated[Path | None, typer.Option(help="private key of the webhook's certificate, PEM")] = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Start a manager and print `ready` once it serves requests; SIGTERM or Ctrl-C stops it. Workers keep running.
    Settings also come from a file and from SHOAL_SHARD_MANAGER_* variables; flags win."""
    from shoal.app.sharding.manager import run_manager

    flags = {
        "kubeconfig": kubeconfig, "context": context, "namespace": namespace, "name": name, "host": host, "port": port,
        "elect": elect, "lease_s": election_lease, "renew_deadline_s": election_renew_deadline,
        "retry_s": election_retry, "install": install, "worker_image": worker_image,
        "webhook_networks": webhook_network or None, "webhook_port": webhook_port,
        "webhook_certificate": webhook_certificate, "webhook_key": webhook_key, "log_level": log_level,
    }  # fmt: skip
    settings = read_settings(SHARD_MANAGER, flags, file=config)
    start_logs(settings.log_level)
    if stop_on_eof:
        stop_when_stdin_ends()

    def serve(stop: asyncio.Event) -> object:
        return run_manager(settings, stop, say_ready)

    run_until_signal(serve, traced="shoal-shard-manager")


@app.command("manifests")
def manifests(
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help="sharded kind as PLURAL.GROUP; with a + in front, a kind that follows its owner; may be repeated"
        ),
    ] = None,
    namespace: Annotated[str, typer.Option(help="namespace of the manager; default shoal-system")] = "",
    worker_namespace: Annotated[
        list[str] | None, typer.Option(help="namespace of ShardConfigs and workers; may be repeated; default `default`")
    ] = None,
    image: Annotated[str, typer.Option(help="image of the manager; default: no Deployment of the manager")] = "",
    epochs: Annotated[
        list[str] | None,
        typer.Option(help="name of a ShardConfig; adds the policy that refuses late writes; may be repeated"),
    ] = None,
    webhook: Annotated[str, typer.Option(help="name of a ShardConfig; adds the webhook that assigns slots")] = "",
    webhook_url: Annotated[str, typer.Option(help="URL of the manager's webhook, https://HOST:PORT")] = "",
    webhook_ca: Annotated[Path | None, typer.Option(help="CA of the webhook's certificate, PEM")] = None,
) -> None:
    """Print the manifests that an administrator applies: definitions, RBAC, network policies, the manager."""
    import yaml

    from shoal.sharding.manager.admission import webhook_configuration
    from shoal.sharding.manifests import epoch_policy
    from shoal.sharding.manifests import manifests as everything
    from shoal.sharding.rbac import NAMESPACE

    kinds = [_target(text) for text in kind or ()]
    made = everything(
        kinds, namespace=namespace or NAMESPACE, worker_namespaces=worker_namespace or ["default"], image=image
    )
    if epochs:
        if not kinds:
            raise ConfigError("--epochs needs at least one --kind: the policy guards its objects")
        for name in dict.fromkeys(epochs):
            made += epoch_policy(name, kinds)
    if webhook:
        if not kinds or not webhook_url or webhook_ca is None:
            raise ConfigError("--webhook needs --kind, --webhook-url and --webhook-ca")
        made.append(webhook_configuration(webhook, kinds, url=webhook_url, ca=webhook_ca.read_text()))
    typer.echo(yaml.safe_dump_all(made, sort_keys=False, explicit_start=True), nl=False)


_CONFIG = Annotated[str | None, typer.Option(help="name of the ShardConfig; default $SHARD_CONFIG")]
_SHARD = Annotated[
    str | None, typer.Option("--shard", help="unique id of this shard; never reuse one; default $SHARD_ID")
]
_PLACE = Annotated[
    str | None, typer.Option(help="namespace of the ShardConfig; default $SHARD_NAMESPACE, else default")
]
_SETTINGS = Annotated[Path | None, typer.Option(help="settings file, YAML or JSON")]
_ELSE = "default: as the ShardConfig says, else"


@app.command("worker")
def worker(
    controller: Annotated[
        str,
        typer.Argument(
            metavar="[MODULE:NAME]",
            help="a ShardedController in a Python module; default: the built-in worker, for ShardedResources",
        ),
    ] = "",
    config: _CONFIG = None,
    shard: _SHARD = None,
    namespace: _PLACE = None,
    kubeconfig: Kubeconfig = None,
    settings: _SETTINGS = None,
    concurrency: Annotated[int | None, typer.Option(help=f"concurrent handlers; {_ELSE} 16")] = None,
    batch: Annotated[
        int | None, typer.Option(help=f"largest number of objects of a batch handler at once; {_ELSE} 100")
    ] = None,
    handler_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help=f"longest time a handler may take; {_ELSE} 60")
    ] = None,
    drain_timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help=f"time the handlers of a moving slot have before they are cancelled; {_ELSE} 20"
        ),
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(help="CPUs available to the worker, to compute its load; default $SHARD_CPUS, else 1"),
    ] = None,
    memory_bytes: Annotated[
        int | None, typer.Option(help="memory available to the worker; default $SHARD_MEMORY_BYTES, else 256 MiB")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="address of health and metrics; default $POD_IP, else 127.0.0.1")
    ] = None,
    port: Annotated[int | None, typer.Option(help="port of health and metrics; default 0: none")] = None,
    webhook_network: Annotated[
        list[str] | None,
        typer.Option(
            help="network, as CIDR, of loopback or link-local addresses that the built-in worker's webhook may have; "
            "may be repeated; default: none"
        ),
    ] = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Run a controller on one shard. On SIGTERM it hands its slots over, then ends. Settings also come from a file and
    from SHOAL_SHARD_WORKER_* variables; flags win."""
    from shoal.app.sharding.worker import builtin_controller, controller_of, run_worker

    flags = {
        "config": config, "shard": shard, "namespace": namespace, "kubeconfig": kubeconfig, "concurrency": concurrency,
        "batch": batch, "handler_timeout_s": handler_timeout, "drain_timeout_s": drain_timeout, "cpus": cpus,
        "memory_limit_bytes": memory_bytes, "host": host, "port": port, "webhook_networks": webhook_network or None,
        "log_level": log_level,
    }  # fmt: skip
    read = read_settings(SHARD_WORKER, flags, file=settings)
    start_logs(read.log_level)
    found = controller_of(controller) if controller else builtin_controller(read, read.webhook_networks)
    if stop_on_eof:
        stop_when_stdin_ends()

    def serve(stop: asyncio.Event) -> object:
        health = (read.host, read.port) if read.port else None
        return run_worker(read, found, stop, say_ready, kubeconfig=read.kubeconfig, health=health)

    run_until_signal(serve, traced="shoal-shard-worker")


@app.command("proxy")
def proxy(
    config: _CONFIG = None,
    shard: _SHARD = None,
    namespace: _PLACE = None,
    kubeconfig: Kubeconfig = None,
    settings: _SETTINGS = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="directory to write a certificate and the controller's kubeconfig to; default ."),
    ] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on; default 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; default 8061")] = None,
    concurrency: Annotated[int | None, typer.Option(help=f"requests at once that mean full load; {_ELSE} 16")] = None,
    health_host: Annotated[str | None, typer.Option(help="address of health and metrics; default 127.0.0.1")] = None,
    health_port: Annotated[int | None, typer.Option(help="port of health and metrics; default 0: none")] = None,
    metrics_url: Annotated[
        str | None,
        typer.Option(help="URL of the controller's metrics, to report its queue, http://HOST:PORT/PATH; default: none"),
    ] = None,
    queue_metric: Annotated[
        str | None,
        typer.Option(help="metric of the controller whose sum is its queue's length; default workqueue_depth"),
    ] = None,
    log_level: LogLevel = None,
    stop_on_eof: StopOnEof = False,
) -> None:
    """Run a proxy for a controller without shard support: through DIR/kubeconfig it sees and writes only its shard.
    Settings also come from a file and from SHOAL_SHARD_PROXY_* variables; flags win."""
    from shoal.app.sharding.proxy import run_proxy
    from shoal.sharding.proxy.load import read_queue_source

    flags = {
        "config": config, "shard": shard, "namespace": namespace, "kubeconfig": kubeconfig, "dir": folder, "host": host,
        "port": port, "concurrency": concurrency, "health_host": health_host, "health_port": health_port,
        "metrics_url": metrics_url, "queue_metric": queue_metric, "log_level": log_level,
    }  # fmt: skip
    read = read_settings(SHARD_PROXY, flags, file=settings)
    start_logs(read.log_level)
    queue = read_queue_source(read.metrics_url, read.queue_metric)
    if stop_on_eof:
        stop_when_stdin_ends()

    def serve(stop: asyncio.Event) -> object:
        def ready() -> None:
            say_ready(str(read.dir / "kubeconfig"))

        return run_proxy(
            read, stop, ready, folder=read.dir, host=read.host, port=read.port, kubeconfig=read.kubeconfig,
            health=(read.health_host, read.health_port) if read.health_port else None, queue=queue,
        )  # fmt: skip

    run_until_signal(serve, traced="shoal-shard-proxy")


def _target(text: str) -> TargetKind:
    from shoal.sharding.rbac import TargetKind

    plural, _, group = text.removeprefix("+").partition(".")
    if not plural:
        raise ConfigError(f"--kind is {text!r}: use PLURAL.GROUP, for example websites.example.com")
    return TargetKind(group, plural, controlled=text.startswith("+"))
