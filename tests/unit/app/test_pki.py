"""Keys and certificates."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shoal.app import pki as pki_module
from shoal.app.pki import LEAF_LIFE, KeyPair, Pki, server_context, service_account_keys
from shoal.errors import ConfigError

NOW = datetime.now(UTC)
HOSTS = ("kubernetes.default.svc", "localhost", "127.0.0.1", "::1", "10.96.0.1")


def certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.cert.read_bytes())


def test_the_server_certificate_names_every_host_and_is_signed_by_the_authority(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=NOW)
    server = certificate(pki.ensure_server(HOSTS))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["kubernetes.default.svc", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(h) for h in HOSTS[2:]]
    server.verify_directly_issued_by(certificate(pki.ensure_ca()))
    usage = server.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_client_certificate_carries_user_and_groups(tmp_path: Path) -> None:
    pair = Pki(tmp_path, now=NOW).ensure_client("admin", "alice", ("system:masters", "dev"))
    subject = certificate(pair).subject
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["alice"]
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:masters", "dev"]


async def test_a_tls_client_that_trusts_the_ca_can_connect_and_authenticate(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=NOW)
    server, client = pki.ensure_server(HOSTS), pki.ensure_client("c", "alice")

    seen: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(writer.get_extra_info("peercert"))
        writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=server_context(server, pki.ca_cert))
    context = ssl.create_default_context(cafile=pki.ca_cert)
    context.load_cert_chain(client.cert, client.key)
    port = listener.sockets[0].getsockname()[1]
    async with listener, asyncio.timeout(5):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert (("commonName", "alice"),) in (await seen)["subject"]
        writer.close()


def test_a_second_start_uses_the_same_files_without_loading_the_cryptography_library(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=NOW)
    pki.ensure_server(HOSTS)
    pki.ensure_service_account_key()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code = (
        "import sys; from pathlib import Path; from datetime import UTC, datetime; from shoal.app.pki import Pki;"
        f"pki = Pki(Path({str(tmp_path)!r}), now=datetime.now(UTC)); pki.ensure_server({HOSTS!r});"
        "pki.ensure_service_account_key(); assert 'cryptography' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left_by_the_same_authority(tmp_path: Path) -> None:
    first = certificate(Pki(tmp_path, now=NOW).ensure_server(HOSTS))
    still = Pki(tmp_path, now=NOW + LEAF_LIFE * 0.6)
    assert certificate(still.ensure_server(HOSTS)) == first
    later = Pki(tmp_path, now=NOW + LEAF_LIFE * 0.7)
    renewed = certificate(later.ensure_server(HOSTS))
    assert renewed.not_valid_after_utc > first.not_valid_after_utc
    renewed.verify_directly_issued_by(certificate(later.ensure_ca()))
    first.verify_directly_issued_by(certificate(later.ensure_ca()))


def bundle(pki: Pki) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pki.ca_cert.read_bytes())


def test_an_authority_that_becomes_old_is_replaced_with_an_overlap(tmp_path: Path) -> None:
    Pki(tmp_path, now=NOW).ensure_ca()
    (old,) = bundle(Pki(tmp_path, now=NOW))
    young = certificate(Pki(tmp_path, now=NOW + timedelta(days=2400)).ensure_server(HOSTS))
    begun = Pki(tmp_path, now=NOW + timedelta(days=2440))
    assert certificate(begun.ensure_server(HOSTS)) == young
    assert bundle(begun)[0] == old and len(bundle(begun)) == 2
    new = bundle(begun)[1]
    switched = Pki(tmp_path, now=NOW + timedelta(days=2471))
    certificate(switched.ensure_server(HOSTS)).verify_directly_issued_by(new)
    assert bundle(switched) == [new, old]
    done = Pki(tmp_path, now=NOW + timedelta(days=2501))
    assert certificate(done.ensure_server(HOSTS)) == certificate(switched.ensure_server(HOSTS))
    assert bundle(done) == [new] and done.rotation is None
    Pki(tmp_path, now=NOW + timedelta(days=2502)).ensure_ca()
    assert bundle(done) == [new]


def test_one_rotation_at_a_time(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=NOW)
    pki.rotate_ca(timedelta(days=1))
    with pytest.raises(ConfigError, match="being replaced already: the new authority signs at"):
        Pki(tmp_path, now=NOW).rotate_ca(timedelta(days=1))


@pytest.mark.parametrize("step", [0, 1, 2])
@pytest.mark.parametrize("dies_at", range(6))
def test_a_rotation_that_dies_at_any_point_goes_on_and_forgets_nobody_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, dies_at: int
) -> None:
    Pki(tmp_path, now=NOW).ensure_server(HOSTS)
    (old,) = bundle(Pki(tmp_path, now=NOW))
    day = timedelta(days=1)
    works = [
        lambda: Pki(tmp_path, now=NOW).rotate_ca(day),
        lambda: Pki(tmp_path, now=NOW + day).ensure_server(HOSTS),
        lambda: Pki(tmp_path, now=NOW + 2 * day).ensure_server(HOSTS),
    ]
    for work in works[:step]:
        work()
    trusted = bundle(Pki(tmp_path, now=NOW))
    writes = 0
    write = pki_module.write_private

    def dying(path: Path, content: bytes) -> None:
        nonlocal writes
        writes += 1
        if writes > dies_at:
            raise OSError("the power failed")
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(pki_module, "write_private", dying)
        with suppress(OSError):
            works[step]()
    after = Pki(tmp_path, now=NOW + step * day)
    leaf = certificate(after.ensure_server(HOSTS))
    known = bundle(after)
    if step < 2:
        assert set(trusted) <= set(known), "whom clients trust is still there"
        assert old in known
    issuers = [one for one in known if one.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
               == leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier]  # fmt: skip
    assert len(issuers) == 1
    leaf.verify_directly_issued_by(issuers[0])


@pytest.mark.parametrize("harm", ["another host", "changed file", "missing key", "spoilt manifest"])
def test_a_certificate_that_does_not_fit_is_made_again(tmp_path: Path, harm: str) -> None:
    pair = Pki(tmp_path, now=NOW).ensure_server(HOSTS)
    before, hosts = certificate(pair), HOSTS
    match harm:
        case "another host":
            hosts = (*HOSTS, "new.example")
        case "changed file":
            pair.cert.write_text("x")
        case "missing key":
            pair.key.unlink()
        case "spoilt manifest":
            (tmp_path / "manifest.json").write_text("{")
    pki = Pki(tmp_path, now=NOW)
    after = certificate(pki.ensure_server(hosts))
    assert after != before
    after.verify_directly_issued_by(certificate(pki.ensure_ca()))
    server_context(pair, pki.ca_cert)  # certificate and key belong together


def test_everything_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "pki"
    pki = Pki(directory, now=NOW)
    pki.ensure_server(HOSTS)
    pki.ensure_service_account_key()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


def test_the_service_account_keys_belong_together_and_are_never_replaced(tmp_path: Path) -> None:
    private, public = Pki(tmp_path, now=NOW).ensure_service_account_key()
    key = load_pem_private_key(private.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    verifier = load_pem_public_key(public.read_bytes())
    assert isinstance(verifier, ec.EllipticCurvePublicKey)
    verifier.verify(key.sign(b"x", ec.ECDSA(hashes.SHA256())), b"x", ec.ECDSA(hashes.SHA256()))
    before = private.read_bytes()
    Pki(tmp_path, now=NOW + timedelta(days=9000)).ensure_service_account_key()
    assert private.read_bytes() == before


def test_a_rotation_keeps_the_old_key_for_verifying_even_after_an_interrupted_one(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=NOW)
    private, public = pki.ensure_service_account_key()
    before = public.read_bytes()
    public.write_bytes(b"of a rotation that ended half way")
    kept = pki.rotate_service_account_key()
    keys = service_account_keys(tmp_path)
    assert kept.read_bytes() == before
    assert keys.older == (before,)
    assert keys.signing == private.read_bytes()
    key = load_pem_private_key(keys.signing, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.public_key() == load_pem_public_key(public.read_bytes())
    pki.rotate_service_account_key()
    assert len(service_account_keys(tmp_path).older) == 2


def test_the_front_proxy_has_an_authority_of_its_own(tmp_path: Path) -> None:
    pki = Pki(tmp_path, now=NOW)
    authority, client = pki.ensure_front_proxy("front-proxy-client")
    certificate(client).verify_directly_issued_by(certificate(authority))
    assert certificate(authority).public_key() != certificate(pki.ensure_ca()).public_key()
    later = Pki(tmp_path, now=NOW)
    assert later.ensure_front_proxy("front-proxy-client") == (authority, client)
    kept = authority.cert.read_bytes(), client.cert.read_bytes()
    (tmp_path / "ca.crt").unlink()
    Pki(tmp_path, now=NOW).ensure_ca()  # renewing one authority leaves the other
    Pki(tmp_path, now=NOW).ensure_front_proxy("front-proxy-client")
    assert (authority.cert.read_bytes(), client.cert.read_bytes()) == kept
