"""One cluster as a process: builds the object graph, runs it, stops it in order. Today it is the API server."""

from __future__ import annotations

import asyncio
import resource
import signal
import sys

from shoal.apiserver.authn.service import Authority
from shoal.apiserver.context import ServerConfig
from shoal.apiserver.http import HttpLimits
from shoal.apiserver.registry import Registry
from shoal.apiserver.server import ApiServer
from shoal.app.config import ClusterConfig
from shoal.app.credentials import ensure_admin
from shoal.app.pki import Pki, server_context, service_account_keys
from shoal.app.reload import as_credentials, follow_credentials
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.store import open_store

# Threads hand the interpreter over this often; the default of 5 ms would let the store's writer wait that long for a
# busy event loop before each of its steps.
_SWITCH_INTERVAL_S = 0.0005
_OWN_FILES = 320  # store, logs, connections that are refused


async def run_cluster(config: ClusterConfig) -> None:
    """Run until SIGTERM or SIGINT; prints ``ready URL`` once clients are served."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    clock = RealClock()
    pki = Pki(config.pki_dir, now=clock.now())
    keys = pki.ensure_server(config.certificate_hosts, config.server_name)
    pki.ensure_service_account_key()
    signing_keys = service_account_keys(config.pki_dir)
    authority = pki.ensure_ca()
    tokens = ensure_admin(config, pki.ca_cert)
    registry = Registry()
    store = open_store(config.store.url, attrs_of=registry.attrs_of, events=config.events)
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
            anonymous=config.anonymous,
            flow=config.flow,
            audit=config.audit,
        ),
        tokens=as_credentials(tokens),
        signing_key=signing_keys.signing,
        verification_keys=signing_keys.older,
        authority=Authority(authority.cert.read_bytes(), authority.key.read_bytes()),
    )
    following = asyncio.create_task(follow_credentials(config, server.authentication, clock), name="credentials")
    try:
        await server.start()
        limits = HttpLimits(connections=connection_limit())
        await server.listen(config.host, config.port, tls=server_context(keys, pki.ca_cert), limits=limits)
        print(f"ready {config.url}", flush=True)
        await stop.wait()
    finally:
        following.cancel()
        await server.stop()
        await store.stop()


def connection_limit() -> int:
    """As many connections as this process may have files, less what it needs itself; asks for all it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = HttpLimits().connections + _OWN_FILES
    if soft < wanted and soft != resource.RLIM_INFINITY:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return HttpLimits().connections if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft) - _OWN_FILES)
