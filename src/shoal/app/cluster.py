"""One cluster as a process: builds the object graph, runs it, stops it in order. Today it is the API server."""

from __future__ import annotations

import asyncio
import signal
import sys

from shoal.apiserver.authn.authenticator import AUTHENTICATED
from shoal.apiserver.context import ServerConfig, User
from shoal.apiserver.registry import Registry
from shoal.apiserver.server import ApiServer
from shoal.app.config import ClusterConfig
from shoal.app.credentials import ensure_admin
from shoal.app.pki import Pki, server_context
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.store import open_store

# Threads hand the interpreter over this often; the default of 5 ms would let the store's writer wait that long for a
# busy event loop before each of its steps.
_SWITCH_INTERVAL_S = 0.0005


async def run_cluster(config: ClusterConfig) -> None:
    """Run until SIGTERM or SIGINT; prints ``ready URL`` once clients are served."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = RealClock()
    pki = Pki(config.pki_dir, now=clock.now())
    keys = pki.ensure_server(config.certificate_hosts)
    signing_key, _ = pki.ensure_service_account_key()
    tokens = ensure_admin(config, pki.ca_cert)
    registry = Registry()
    store = open_store(config.store.url, attrs_of=registry.attrs_of)
    await store.start()
    server = ApiServer(
        store,
        registry,
        clock=clock,
        ids=Ids(),
        config=ServerConfig(
            service_cidr=config.service_cidr,
            advertise_port=config.port,
            ca_certificate=pki.ca_cert.read_text(),
        ),
        tokens={digest: User(user.name, (*user.groups, AUTHENTICATED), user.uid) for digest, user in tokens.items()},
        signing_key=signing_key.read_bytes(),
    )
    try:
        await server.start()
        await server.listen(config.host, config.port, tls=server_context(keys, pki.ca_cert))
        print(f"ready {config.url}", flush=True)
        await stop.wait()
    finally:
        await server.stop()
        await store.stop()
