"""``shoal sentinel start``: a gateway."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

import typer

from shoal.app.processes import run_until_signal
from shoal.base import logs
from shoal.cli.apps import new_app

app = new_app("Run a gateway.", group=True)


@app.command("start")
def start(
    name: Annotated[str | None, typer.Option(help="of this gateway")] = None,
    environment: Annotated[str | None, typer.Option(help="id of the environment it serves")] = None,
    region: Annotated[str | None, typer.Option(help="where it stands")] = None,
    host: Annotated[str | None, typer.Option(help="address of its ports; default $POD_IP, else 127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="for traffic; default 8040")] = None,
    health_port: Annotated[int | None, typer.Option(help="for /livez and /readyz; default 8041")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="for /metrics; default 8042")] = None,
    log_level: Annotated[str, typer.Option(help=", ".join(logs.LEVELS), envvar="SHOAL_LOG_LEVEL")] = "info",
) -> None:
    """Start a gateway and print `ready`; settings also come from SHOAL_SENTINEL_* variables."""
    from random import Random

    from shoal.base.clock import RealClock
    from shoal.base.metrics import PROCESS
    from shoal.base.settings import load
    from shoal.sentinel.config import SentinelConfig
    from shoal.sentinel.service import run_sentinel

    logs.configure(level=log_level)
    flags = {
        "name": name, "environment": environment, "region": region, "host": host or os.environ.get("POD_IP"),
        "pod": os.environ.get("POD_NAME"),
        "port": port, "health_port": health_port, "metrics_port": metrics_port,
    }  # fmt: skip
    config = load(SentinelConfig, environ=os.environ, prefix="SHOAL_SENTINEL_", flags=flags)

    def serve(stop: asyncio.Event) -> object:
        ready = f"ready http://{config.host}:{config.port}"
        return run_sentinel(
            config, stop, lambda: print(ready, flush=True), clock=RealClock(), random=Random().random, metrics=PROCESS
        )

    run_until_signal(serve)
