"""The relay of a region as a process: the cluster service for its agents, with a certificate of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from random import Random

from shoal import __version__
from shoal.app.certificates import CertificateKeeper
from shoal.app.fleet.config import RelaySettings
from shoal.app.fleet.control import by_path
from shoal.app.health import health_app, mostly_local
from shoal.base.asgi import serving
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.base.metrics import PROCESS
from shoal.base.supervision import supervise
from shoal.base.tasks import wait_first
from shoal.control.relay.wiring import RelayServer
from shoal.errors import ConfigError


async def run_relay(config: RelaySettings, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
    """Serve until ``stop``."""
    clock, ids = RealClock(), Ids()
    token, ca = read_token_file(config.token_file)
    if config.ca is not None:
        ca = _read(config.ca, "ca")
    if config.url.startswith("https://") and not ca:
        raise ConfigError("ca is not set: an https url needs the control plane's CA certificates")
    keeper = CertificateKeeper(config.dir / "pki", clock=clock, metrics=PROCESS)
    tls = keeper.keep_tls("server", lambda pki: pki.ensure_server(config.certificate_hosts))
    last = token

    def current() -> str:
        nonlocal last
        try:
            last = read_token_file(config.token_file)[0]
        except ConfigError:
            pass  # being replaced: the one before works for a while
        return last

    relay = RelayServer(
        url=config.url, ca=ca, token=current, name=f"{socket.gethostname()}-{os.getpid()}-{ids.new_suffix()}",
        software=f"shoal/{__version__}", clock=clock, random=Random().random, config=config.relay,
    )  # fmt: skip
    app = by_path(relay.app, mostly_local(health_app(relay.livez, relay.readyz, PROCESS, relay.status)))

    async def served() -> None:
        async with serving(app, host=config.host, port=config.port, clock=clock, tls=tls, listening=config.listening):
            on_ready()
            await stop.wait()

    await wait_first(served(), relay.run(), supervise("certificates", keeper.run, clock=clock))


def read_token_file(path: Path) -> tuple[str, str]:
    """Token and CA from a file with only the token, or from a join file of `shoal token create --kind relay`."""
    text = _read(path, "token_file").strip()
    if not text.startswith("{"):
        if not text or any(letter.isspace() for letter in text):
            raise ConfigError(f"token_file is {str(path)!r}: it has no token; create one with `shoal token create`")
        return text, ""
    try:
        found = json.loads(text)
        return str(found["token"]), str(found.get("ca", ""))
    except (ValueError, KeyError) as error:
        raise ConfigError(f"token_file is {str(path)!r}: not a join file: {error}") from None


def _read(path: Path, setting: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigError(f"{setting} is {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{setting} is {str(path)!r}: not a text file") from None
