"""Client certificates, over real TLS and by themselves."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from authn_requests import a_certificate, der_of, subject
from authn_server import ADMIN, WHO_AM_I, AuthnServer, bounded_server
from cryptography.x509.oid import ExtendedKeyUsageOID

from shoal.apiserver.authn.certificates import ClientCertificates
from shoal.app.pki import KeyPair, Pki, server_context
from shoal.base.clock import FakeClock

SERVER_AUTH, CLIENT_AUTH = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
ANY = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE


class Connection:
    """One TLS connection that asks who it is."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def who(self, *headers: str) -> tuple[int, Any]:
        body = b"{}"
        lines = [f"POST {WHO_AM_I} HTTP/1.1", "host: x", "content-type: application/json", *headers]
        head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode()
        self.writer.write(head + body)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1]) for line in answer.split("\r\n") if line.lower().startswith("content-len")
        )
        content = orjson.loads(await self.reader.readexactly(length))
        return int(answer.split()[1]), content.get("status", {}).get("userInfo") if answer.split()[
            1
        ] == "201" else content

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ssl.SSLError, ConnectionError):
            return


async def listen(server: AuthnServer) -> int:
    keys = server.pki.ensure_server(("localhost", "127.0.0.1"))
    return await server.server.listen("127.0.0.1", 0, tls=server_context(keys, server.pki.ca_cert))


async def connect(server: AuthnServer, port: int, keys: tuple[bytes, bytes] | None = None) -> Connection:
    context = ssl.create_default_context(cafile=server.pki.ca_cert)
    if keys is not None:
        path = server.folder / "client.pem"
        path.write_bytes(keys[1] + keys[0])
        context.load_cert_chain(path)
    return Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost"))


async def test_a_connection_is_the_user_of_its_certificate() -> None:
    async with bounded_server() as server:
        port = await listen(server)
        keys = a_certificate(server.pki.ensure_ca(), subject("alice", ("dev", "ops")))
        connection = await connect(server, port, keys)
        for _ in range(2):
            status, user = await connection.who()
            assert status == 201
            assert user == {
                "username": "alice",
                "groups": ["dev", "ops", "system:authenticated"],
                "extra": {
                    "authentication.kubernetes.io/credential-id": [
                        f"X509SHA256={hashlib.sha256(der_of(keys[0])).hexdigest()}"
                    ]
                },
            }
        status, user = await connection.who(f"authorization: Bearer {ADMIN}")
        assert user["username"] == "alice", "the certificate comes first"
        await connection.close()


async def test_a_certificate_is_asked_for_and_not_required() -> None:
    async with bounded_server() as server:
        port = await listen(server)
        connection = await connect(server, port)
        assert (await connection.who())[0] == 401
        status, user = await connection.who(f"authorization: Bearer {ADMIN}")
        assert (status, user["username"]) == (201, "admin")
        await connection.close()


async def test_a_certificate_that_ends_while_its_connection_lives_ends_the_user() -> None:
    clock = FakeClock(datetime.now(UTC))

    async with bounded_server(clock=clock) as server:
        port = await listen(server)
        keys = a_certificate(server.pki.ensure_ca(), subject("alice"), life=timedelta(minutes=4))
        connection = await connect(server, port, keys)
        assert (await connection.who())[0] == 201
        await clock.advance(4 * 60)  # less than an idle connection is kept
        assert (await connection.who())[0] == 401
        status, user = await connection.who(f"authorization: Bearer {ADMIN}")
        assert (status, user["username"]) == (201, "admin"), "another way in is still open"
        await connection.close()


@pytest.mark.parametrize("fault", ["another authority", "expired", "not yet valid", "for servers", "signed by itself"])
async def test_a_certificate_that_is_not_good_does_not_get_a_connection(fault: str, tmp_path: Path) -> None:
    async with bounded_server() as server:
        port = await listen(server)
        ours, name = server.pki.ensure_ca(), subject("alice", ("system:masters",))
        now = datetime.now(UTC)
        match fault:
            case "another authority":
                keys = a_certificate(Pki(tmp_path, now=now).ensure_ca(), name)
            case "expired":
                keys = a_certificate(ours, name, starts=now - timedelta(hours=2))
            case "not yet valid":
                keys = a_certificate(ours, name, starts=now + timedelta(minutes=30))
            case "for servers":
                keys = a_certificate(ours, name, purposes=(SERVER_AUTH,))
            case _:
                leaf, key = a_certificate(ours, name)
                (tmp_path / "c.crt").write_bytes(leaf)
                (tmp_path / "c.key").write_bytes(key)
                keys = a_certificate(KeyPair(tmp_path / "c.crt", tmp_path / "c.key"), subject("bob"))
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            connection = await connect(server, port, keys)  # with TLS 1.3 the refusal comes with the first answer
            try:
                await connection.who()
            finally:
                await connection.close()


@pytest.mark.parametrize(
    ("purposes", "accepted"),
    [((CLIENT_AUTH,), True), ((SERVER_AUTH, CLIENT_AUTH), True), ((ANY,), True), (None, True), ((SERVER_AUTH,), False)],
)
def test_a_certificate_must_be_for_clients(purposes: Any, accepted: bool, tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC))
    authority = Pki(tmp_path, now=clock.now()).ensure_ca()
    der = der_of(a_certificate(authority, subject("alice"), purposes=purposes)[0])
    assert (ClientCertificates(clock).user_of(der) is not None) == accepted


def test_a_certificate_without_a_common_name_has_no_user(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC))
    authority = Pki(tmp_path, now=clock.now()).ensure_ca()
    assert ClientCertificates(clock).user_of(der_of(a_certificate(authority, subject("", ("dev",)))[0])) is None
    assert ClientCertificates(clock).user_of(b"no certificate") is None


async def test_a_certificate_counts_from_its_start_to_its_end(tmp_path: Path) -> None:
    clock = FakeClock(datetime.now(UTC))

    authority = Pki(tmp_path, now=clock.now()).ensure_ca()
    starts = clock.now() + timedelta(minutes=10)
    der = der_of(a_certificate(authority, subject("alice"), starts=starts, life=timedelta(minutes=5))[0])
    known = ClientCertificates(clock)
    seen = []
    for _ in range(4):
        seen.append(known.user_of(der) is not None)
        await clock.advance(5 * 60 + 1)
    assert seen == [False, False, True, False]
