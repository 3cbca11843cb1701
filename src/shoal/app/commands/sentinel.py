"""``shoal sentinel start``: runs a gateway."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from shoal.app.commands.options import LogLevel, ReloadedConfig
from shoal.app.processes import run_until_signal, say_ready, start_logs
from shoal.app.settings import SENTINEL, read_settings
from shoal.cli.apps import new_app

app = new_app("Run a gateway.", group=True)


@app.command("start")
def start(
    name: Annotated[str | None, typer.Option(help="name of this gateway")] = None,
    environment: Annotated[str | None, typer.Option(help="id of the environment that it serves")] = None,
    region: Annotated[str | None, typer.Option(help="region that it runs in")] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on; default $POD_IP, else 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="port for traffic; default 8040")] = None,
    health_port: Annotated[int | None, typer.Option(help="port for /livez and /readyz; default 8041")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="port for /metrics; default 8042")] = None,
    config: ReloadedConfig = None,
    log_level: LogLevel = None,
) -> None:
    """Start a gateway and print `ready`. SHOAL_SENTINEL_* variables set the settings too; SIGHUP reads them again."""
    from random import Random

    from shoal.app.fleet.gateway import SentinelSettings
    from shoal.app.fleet.reloading import Reloading
    from shoal.base.clock import RealClock
    from shoal.base.metrics import PROCESS
    from shoal.sentinel.service import run_sentinel

    flags = {
        "name": name, "environment": environment, "region": region, "host": host,
        "port": port, "health_port": health_port, "metrics_port": metrics_port, "log_level": log_level,
    }  # fmt: skip

    def read() -> SentinelSettings:
        found: SentinelSettings = read_settings(SENTINEL, flags, file=config)
        if found.state is not None and (folder := os.environ.get("SHOAL_POD_DIR")):
            found = replace(
                found, state=Path(folder) / str(found.state).lstrip("/")
            )  # Shoal's process nodes keep a pod's volumes there
        return found

    settings = read()
    start_logs(settings.log_level)

    def serve(stop: asyncio.Event) -> object:
        url = f"http://{settings.host}:{settings.port}"
        return run_sentinel(
            settings, stop, lambda: say_ready(url), clock=RealClock(), random=Random().random, metrics=PROCESS
        )

    run_until_signal(serve, Reloading(read, settings))
