"""``shoal shard``: runs the shard manager, workers and proxies, and prints their manifests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.app.processes import run_until_signal, say_ready, start_logs, stop_when_stdin_ends
from shoal.base import logs
from shoal.cli.apps import new_app
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.sharding.rbac import TargetKind

app = new_app("Run a controller as several active workers.", group=True)


@app.command("manager")
def manager(
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="kubeconfig of the cluster; default: the pod's service account, else kubectl's file"),
    ] = None,
    context: Annotated[str, typer.Option(help="context in the kubeconfig")] = "",
    namespace: Annotated[str, typer.Option(help="namespace of the leader election's Lease; default shoal-system")] = "",
    host: Annotated[str, typer.Option(help="address of health and metrics")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port of health and metrics; 0 for any free port")] = 8060,
    name: Annotated[
        str, typer.Option(help="identity of this process in the leader election; default: derived from the host name")
    ] = "",
    elect: Annotated[bool, typer.Option(help="use leader election, so that replicas can run")] = True,
    install: Annotated[bool, typer.Option(help="apply the CustomResourceDefinitions first")] = False,
    webhook_port: Annotated[
        int, typer.Option(help="port of the webhook that assigns slots at admission; 0: only the sweep assigns slots")
    ] = 0,
    webhook_certificate: Annotated[Path | None, typer.Option(help="certificate of the webhook, PEM")] = None,
    webhook_key: Annotated[Path | None, typer.Option(help="private key of the webhook's certificate, PEM")] = None,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Start a manager and print `ready` once it serves requests; SIGTERM or Ctrl-C stops it. Workers keep running."""
    from shoal.app.sharding.manager import run_manager
    from shoal.sharding.manager.config import ManagerConfig
    from shoal.sharding.rbac import NAMESPACE

    start_logs(log_level)
    config = ManagerConfig(
        kubeconfig=kubeconfig,
        context=context,
        namespace=namespace or NAMESPACE,
        name=name,
        host=host,
        port=port,
        elect=elect,
        install=install,
        webhook_port=webhook_port,
        webhook_certificate=webhook_certificate,
        webhook_key=webhook_key,
    )
    if stop_on_eof:
        stop_when_stdin_ends()

    def serve(stop: asyncio.Event) -> object:
        return run_manager(config, stop, say_ready)

    run_until_signal(serve)


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
    epochs: Annotated[str, typer.Option(help="name of a ShardConfig; adds the policy that refuses late writes")] = "",
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
        made += epoch_policy(epochs, kinds)
    if webhook:
        if not kinds or not webhook_url or webhook_ca is None:
            raise ConfigError("--webhook needs --kind, --webhook-url and --webhook-ca")
        made.append(webhook_configuration(webhook, kinds, url=webhook_url, ca=webhook_ca.read_text()))
    typer.echo(yaml.safe_dump_all(made, sort_keys=False, explicit_start=True), nl=False)


_CONFIG = Annotated[str, typer.Option(envvar="SHARD_CONFIG", help="name of the ShardConfig")]
_SHARD = Annotated[str, typer.Option("--shard", envvar="SHARD_ID", help="unique id of this shard; never reuse one")]
_PLACE = Annotated[str, typer.Option(envvar="SHARD_NAMESPACE", help="namespace of the ShardConfig")]
_KUBECONFIG = Annotated[
    Path | None, typer.Option(help="kubeconfig of the cluster; default: the pod's service account, else kubectl's")
]
_LEVEL = Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")]


@app.command("worker")
def worker(
    controller: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="a ShardedController in a Python module")],
    config: _CONFIG = "",
    shard: _SHARD = "",
    namespace: _PLACE = "default",
    kubeconfig: _KUBECONFIG = None,
    concurrency: Annotated[int, typer.Option(help="concurrent handlers")] = 16,
    cpus: Annotated[
        float, typer.Option(envvar="SHARD_CPUS", help="CPUs available to the worker, to compute its load")
    ] = 1.0,
    memory_bytes: Annotated[int, typer.Option(envvar="SHARD_MEMORY_BYTES", help="memory available to the worker")] = 256
    * 1024
    * 1024,
    host: Annotated[str, typer.Option(envvar="POD_IP", help="address of health and metrics")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port of health and metrics; 0: none")] = 0,
    log_level: _LEVEL = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run a controller on one shard. On SIGTERM it hands its slots over, then ends."""
    from shoal.app.sharding.worker import controller_of, run_worker
    from shoal.sharding.worker import WorkerConfig

    start_logs(log_level)
    settings = WorkerConfig(
        config=config, shard=shard, namespace=namespace, concurrency=concurrency, cpus=cpus,
        memory_limit_bytes=memory_bytes,
    )  # fmt: skip
    found = controller_of(controller)
    if stop_on_eof:
        stop_when_stdin_ends()

    def serve(stop: asyncio.Event) -> object:
        health = (host, port) if port else None
        return run_worker(settings, found, stop, say_ready, kubeconfig=kubeconfig, health=health)

    run_until_signal(serve)


@app.command("proxy")
def proxy(
    config: _CONFIG = "",
    shard: _SHARD = "",
    namespace: _PLACE = "default",
    kubeconfig: _KUBECONFIG = None,
    folder: Annotated[
        Path, typer.Option("--dir", help="directory to write a certificate and the controller's kubeconfig to")
    ] = Path(),
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to listen on")] = 8061,
    log_level: _LEVEL = "info",
    stop_on_eof: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run a proxy for a controller without shard support: through DIR/kubeconfig it sees and writes only its shard."""
    from shoal.app.sharding.proxy import run_proxy
    from shoal.sharding.worker import WorkerConfig

    start_logs(log_level)
    settings = WorkerConfig(config=config, shard=shard, namespace=namespace)
    if stop_on_eof:
        stop_when_stdin_ends()

    def serve(stop: asyncio.Event) -> object:
        def ready() -> None:
            say_ready(str(folder / "kubeconfig"))

        return run_proxy(settings, stop, ready, folder=folder, host=host, port=port, kubeconfig=kubeconfig)

    run_until_signal(serve)


def _target(text: str) -> TargetKind:
    from shoal.sharding.rbac import TargetKind

    plural, _, group = text.removeprefix("+").partition(".")
    if not plural:
        raise ConfigError(f"--kind is {text!r}: use PLURAL.GROUP, for example websites.example.com")
    return TargetKind(group, plural, controlled=text.startswith("+"))
