"""Certificates of a running process: renewed in time, used at once, and never at the cost of a connection."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from shoal.app import pki as pki_module
from shoal.app.certificates import DAY_S, CertificateKeeper, define_certificate_metrics, follow_certificate
from shoal.app.pki import KeyPair, Pki, kubelet_context, server_context
from shoal.base.asgi import Scope, Tls, bind, serving
from shoal.base.asgi_common import Receive, Send, answer
from shoal.base.clock import FakeClock, RealClock
from shoal.base.metrics import Metrics
from shoal.testing.waiting import eventually

HOST = "127.0.0.1"
MINUTE = timedelta(minutes=1)


@dataclass
class Process:
    """A server with kept certificates. Its clock is ahead of the machine's by minutes at most: certificates are
    backdated by five, so that real handshakes accept them."""

    folder: Path
    clock: FakeClock
    keeper: CertificateKeeper
    metrics: Metrics
    port: int

    def client(self, trusted: bytes, pair: KeyPair | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=trusted.decode())
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context

    async def connect(self, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """A connection, and the certificate of the server."""
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=context)
        await echoes(reader, writer)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return reader, writer, der

    async def shown(self, context: ssl.SSLContext) -> bytes:
        _, writer, der = await self.connect(context)
        writer.close()
        return der

    @property
    def authorities(self) -> bytes:
        return (self.folder / "ca.crt").read_bytes()


async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello\n")
    assert await asyncio.wait_for(reader.readline(), 10) == b"hello\n"


@asynccontextmanager
async def a_process(
    tmp_path: Path, make: Callable[[KeyPair, Path], ssl.SSLContext] = server_context
) -> AsyncIterator[Process]:
    clock, metrics = FakeClock(datetime.now(UTC)), Metrics()
    keeper = CertificateKeeper(tmp_path / "pki", clock=clock, metrics=metrics)
    context = keeper.keep_context("server", lambda pki: pki.ensure_server((HOST,)), make)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    async with asyncio.timeout(60):
        try:
            yield Process(tmp_path / "pki", clock, keeper, metrics, server.sockets[0].getsockname()[1])
        finally:
            server.close()


async def test_a_renewed_certificate_is_shown_to_new_clients_and_open_connections_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pki_module, "LEAF_LIFE", 3 * MINUTE)
    async with a_process(tmp_path) as process:
        client = process.client(process.authorities)
        reader, writer, first = await process.connect(client)
        running = asyncio.create_task(process.keeper.run(), name="keeper")
        try:
            await process.clock.advance(60)
            assert await process.shown(client) == first
            monkeypatch.setattr("shoal.app.certificates.DAY_S", 65.0)
            await process.clock.advance(70)
            second = await process.shown(client)
            assert second != first
            assert x509.load_der_x509_certificate(second).not_valid_after_utc > process.clock.now() + 2 * MINUTE
            await echoes(reader, writer)
            writer.close()
        finally:
            running.cancel()


async def test_what_another_process_has_changed_is_used_within_a_second(tmp_path: Path) -> None:
    async with a_process(tmp_path) as process:
        client = process.client(process.authorities)
        first = await process.shown(client)
        running = asyncio.create_task(process.keeper.run(), name="keeper")
        try:
            await process.clock.advance(1)
            Pki(process.folder, now=process.clock.now()).ensure_server((HOST, "another.example"))
            (process.folder / "manifest.json").touch()
            await process.clock.advance(1.5)
            assert await process.shown(client) != first
        finally:
            running.cancel()


async def test_an_asgi_server_uses_the_new_certificate_too(tmp_path: Path) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"ok")

    clock = FakeClock(datetime.now(UTC))
    keeper = CertificateKeeper(tmp_path / "pki", clock=clock, metrics=Metrics())
    hosts = [HOST]
    tls = keeper.keep_tls("server", lambda pki: pki.ensure_server(hosts))
    listening = bind(HOST, 0)
    port = listening.getsockname()[1]
    listening.close()
    client = ssl.create_default_context(cafile=tmp_path / "pki" / "ca.crt")

    async def shown() -> bytes:
        _, writer = await asyncio.open_connection(HOST, port, ssl=client)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return der

    async with asyncio.timeout(60), serving(app, host=HOST, port=port, clock=RealClock(), tls=tls):
        first = await shown()
        hosts.append("another.example")
        keeper.check()
        assert await shown() != first


async def test_a_certificate_that_others_renew_is_used_once_it_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, b"ok")

    clock = FakeClock(datetime.now(UTC))
    pki = Pki(tmp_path / "pki", now=clock.now())
    old, new = pki.ensure_server((HOST,)), pki.ensure_server((HOST,), "server-new")
    used = Tls(tmp_path / "tls.crt", tmp_path / "tls.key")
    used.certificate.write_bytes(old.cert.read_bytes())
    used.key.write_bytes(old.key.read_bytes())
    client = ssl.create_default_context(cafile=pki.ca_cert)
    listening = bind(HOST, 0)
    port = listening.getsockname()[1]
    listening.close()

    async def shown() -> bytes:
        _, writer = await asyncio.open_connection(HOST, port, ssl=client)
        der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return der

    def der_of(pair: KeyPair) -> bytes:
        return ssl.PEM_cert_to_DER_cert(pair.cert.read_text())

    async with asyncio.timeout(60), serving(app, host=HOST, port=port, clock=RealClock(), tls=used):
        running = asyncio.create_task(follow_certificate(used, clock), name="following")
        try:
            await clock.advance(1.5)
            assert await shown() == der_of(old)
            used.certificate.write_bytes(new.cert.read_bytes())
            await clock.advance(1.5)
            assert await shown() == der_of(old), "its key is not there yet"
            assert "cannot be used" in capsys.readouterr().err
            used.key.write_bytes(new.key.read_bytes())
            await clock.advance(1.5)
            assert await shown() == der_of(new)
        finally:
            running.cancel()


async def test_the_metric_and_a_warning_tell_what_expires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock, metrics = FakeClock(datetime.now(UTC)), Metrics()
    keeper = CertificateKeeper(tmp_path / "pki", clock=clock, metrics=metrics)
    keeper.keep("server", lambda pki: pki.ensure_server((HOST,)), lambda: None)
    keeper.keep("kubelet", lambda pki: pki.ensure_server((HOST,), "node-a"), lambda: None)
    Pki(tmp_path / "pki", now=clock.now()).ensure_client("jane", "jane")  # nobody renews it

    def left_days() -> dict[str, float]:
        return {labels[0]: round(value / DAY_S) for labels, value in define_certificate_metrics(metrics).values()}

    assert left_days() == {"ca": 3650, "server": 365, "kubelet": 365}
    clock_days = 340
    await clock.advance(clock_days * DAY_S)
    capsys.readouterr()
    keeper.check()
    assert left_days() == {"ca": 3310, "server": 365, "kubelet": 365, "jane": 25}
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    warned = [line for line in lines if line["message"] == "a certificate expires soon"]
    assert [(line["certificate"], line["days"]) for line in warned] == [("jane", 25.0)]


async def test_through_a_rotation_of_the_authority_nobody_who_trusts_either_is_refused(tmp_path: Path) -> None:
    async with a_process(tmp_path, kubelet_context) as process:
        old = process.authorities
        pki = Pki(process.folder, now=process.clock.now())
        jane = pki.ensure_client("jane", "jane")
        kept = tmp_path / "jane.pem"
        kept.write_bytes(jane.cert.read_bytes() + jane.key.read_bytes())
        by_old = KeyPair(kept, kept)
        before = process.client(old, by_old)  # a kubeconfig from before the rotation
        reader, writer, _ = await process.connect(before)
        changes: list[bytes] = []
        process.keeper.on_authority(lambda pki: changes.append(pki.ca_cert.read_bytes()))

        Pki(process.folder, now=process.clock.now()).rotate_ca(MINUTE)
        process.keeper.check()
        both = process.authorities
        assert both.startswith(old) and both.count(b"BEGIN CERTIFICATE") == 2 and changes == [both]
        during = process.client(both, by_old)  # one that was handed out meanwhile
        for client in (before, during):
            await process.shown(client)

        await process.clock.advance(61)
        process.keeper.check()
        new = process.authorities
        assert new.count(b"BEGIN CERTIFICATE") == 2 and new.endswith(old)
        await process.shown(during)
        with pytest.raises(ssl.SSLCertVerificationError):
            await process.shown(before)
        mary = Pki(process.folder, now=process.clock.now()).ensure_client("mary", "mary")
        after = process.client(new.removesuffix(old), mary)
        await process.shown(after)

        await process.clock.advance(60)
        process.keeper.check()
        assert process.authorities == new.removesuffix(old)
        await process.shown(after)
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            await process.shown(during)  # its certificate is of the old authority
        await echoes(reader, writer)  # opened before all of this
        writer.close()
        await eventually(lambda: len(changes) == 3)
