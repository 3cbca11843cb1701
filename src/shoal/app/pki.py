"""The keys and certificates of a cluster: created at the first start, reused, and renewed before they expire.

    pki/ca.{crt,key}          the authority; signs all certificates below. While it is replaced, ca.crt has two: the one
                              that signs first. ca-next.key is the key of the one that will sign
    pki/server.{crt,key}      the API server's certificate
    pki/<name>.{crt,key}      client certificates: CN is the user, O are the groups
    pki/front-proxy-ca.*      another authority, whose only certificate is the next
    pki/front-proxy-client.*  identifies the API server to aggregated API servers
    pki/sa.{key,pub}          signs and checks service-account tokens (ES256)
    pki/sa-*.pub              check tokens that earlier keys have signed; delete one to end its tokens
    pki/manifest.json         subject, expiry and file digest of each certificate

With the manifest a later start can check the certificates without loading the cryptography library, which is the
slowest step. All keys are P-256, all files readable by their owner only.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.app.files import make_private_dir
from shoal.base.files import write_private
from shoal.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

CA_LIFE = timedelta(days=3650)
OVERLAP = timedelta(days=30)  # two authorities are trusted for this long before, and after, the new one signs
LEAF_LIFE = timedelta(days=365)
RENEW_AT = 1 / 3  # renew when less than this part of the life is left
_BACKDATE = timedelta(minutes=5)  # clocks of clients may be slow
_CA, _FRONT_PROXY_CA = "ca", "front-proxy-ca"  # files and entries of the authorities
_ROTATION = "rotation"  # entry of the manifest


@contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Held while the keys of a directory are looked at and renewed: several processes of a cluster may share it, and a
    certificate of one must not meet the key of another."""
    make_private_dir(directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Subject of a certificate. With ``hosts`` it is a server certificate, without a client certificate."""

    common_name: str
    organizations: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


class Pki:
    """The keys of one directory. ``ensure_*`` methods create missing files and renew those about to expire."""

    def __init__(self, directory: Path, *, now: datetime) -> None:
        self._dir = directory
        self._now = now
        self._manifest = self._read_manifest()
        self._authorities: dict[str, tuple[EllipticCurvePrivateKey, x509.Certificate]] = {}
        make_private_dir(directory)

    @property
    def ca_cert(self) -> Path:
        """What to trust: the authority, and during its rotation the other one too."""
        return self._dir / "ca.crt"

    def expiries(self) -> dict[str, float]:
        """When each certificate expires, in seconds since the epoch."""
        return {name: float(entry["not_after"]) for name, entry in self._manifest.items() if "not_after" in entry}

    def ensure_ca(self) -> KeyPair:
        """The authority. When it has to be renewed it is replaced in the steps of ``rotate_ca``."""
        self._advance()
        return self._ensure_authority(_CA, "shoal-ca")

    def rotate_ca(self, overlap: timedelta = OVERLAP) -> CaRotation:
        """Replace the authority without a moment in which a client that trusts either of the two is refused:

        1. now: another authority is made, and trusted beside the old one. Nothing is signed by it yet, so that
           kubeconfigs and join files that know only the old one work. New ones know both.
        2. after ``overlap``: it signs, and all certificates are made again. The old one is still trusted.
        3. after another ``overlap``: the old one is forgotten.

        ``ensure_ca`` takes steps 2 and 3 when they are due. Raise ConfigError while another rotation is under way."""
        pair = self.ensure_ca()
        if self.rotation is not None:
            raise ConfigError(
                f"the authority in {self._dir} is being replaced already: {self.rotation}; wait for its end"
            )
        return self._begin_rotation(pair, overlap)

    @property
    def rotation(self) -> CaRotation | None:
        """The rotation under way."""
        entry = self._manifest.get(_ROTATION)
        if entry is None:
            return None
        switch, drop = (datetime.fromtimestamp(entry[name], UTC) for name in ("switch_at", "drop_at"))
        return CaRotation(switch, drop, switched=not self._next_key.exists())

    @property
    def _next_key(self) -> Path:
        return self._dir / "ca-next.key"

    def _begin_rotation(self, pair: KeyPair, overlap: timedelta) -> CaRotation:
        key = _new_key()
        cert = _certificate(Subject(common_name="shoal-ca"), key, (key, None), self._now, CA_LIFE)
        write_private(self._next_key, _private_pem(key))
        write_private(pair.cert, pair.cert.read_bytes() + _cert_pem(cert))
        self._manifest[_CA]["sha256"] = _digest(pair.cert)
        self._manifest[_ROTATION] = {
            "ca": "", "switch_at": (self._now + overlap).timestamp(), "drop_at": (self._now + 2 * overlap).timestamp(),
        }  # fmt: skip
        self._save_manifest()
        return CaRotation(self._now + overlap, self._now + 2 * overlap, switched=False)

    def _advance(self) -> None:
        """Take the steps of a rotation that are due. Each can be taken again if the process died in it: what signs is
        decided by ca.key, and ca.crt has the certificates of both keys until the end."""
        rotation = self.rotation
        if rotation is None:
            return
        pair = self._pair(_CA)
        if not rotation.switched and self._now >= rotation.switch_at:
            write_private(pair.key, self._next_key.read_bytes())
            self._authorities.pop(_CA, None)
            key, cert = self._load_authority(_CA)
            others = [one for one in _certs_in(pair.cert) if one != cert]
            write_private(pair.cert, b"".join(map(_cert_pem, [cert, *others])))
            for each in [known for known, entry in self._manifest.items() if entry.get("ca", _CA) == _CA]:
                del self._manifest[each]
            self._note(_CA, pair, Subject(common_name="shoal-ca"), cert.not_valid_after_utc, _CA)
            self._save_manifest()
            self._next_key.unlink()
        elif rotation.switched and self._now >= rotation.drop_at:
            _, cert = self._load_authority(_CA)
            write_private(pair.cert, _cert_pem(cert))
            self._manifest[_CA]["sha256"] = _digest(pair.cert)
            del self._manifest[_ROTATION]
            self._save_manifest()

    def ensure_front_proxy(self, name: str) -> tuple[KeyPair, KeyPair]:
        """The front proxy's authority, and the client certificate with this common name."""
        authority = self._ensure_authority(_FRONT_PROXY_CA, "shoal-front-proxy-ca")
        return authority, self._ensure_leaf("front-proxy-client", Subject(common_name=name), _FRONT_PROXY_CA)

    def _ensure_authority(self, name: str, common_name: str) -> KeyPair:
        pair = self._pair(name)
        subject = Subject(common_name=common_name)
        if not self._is_good(name, pair, subject, CA_LIFE) and not self._is_kept(name, pair, subject):
            for each in [known for known, entry in self._manifest.items() if entry.get("ca", _CA) == name]:
                del self._manifest[each]
            key = _new_key()
            cert = _certificate(subject, key, (key, None), self._now, CA_LIFE)
            self._write(name, pair, subject, key, cert, self._now + CA_LIFE, name)
            self._authorities[name] = key, cert
        return pair

    def _is_kept(self, name: str, pair: KeyPair, subject: Subject) -> bool:
        """Whether an authority is used although it is old, or its files are not those of the manifest: clients know it,
        so it is replaced at once only if it cannot be used."""
        if not (pair.key.exists() and pair.cert.exists()):
            return False
        try:
            _, cert = self._load_authority(name)
        except (ValueError, TypeError):
            return False
        if cert.subject != _name(subject) or cert.not_valid_after_utc - self._now < 3 * OVERLAP:
            return False
        self._note(name, pair, subject, cert.not_valid_after_utc, name)
        self._save_manifest()
        if name == _CA and self.rotation is None and cert.not_valid_after_utc - self._now < CA_LIFE * RENEW_AT:
            self._begin_rotation(pair, OVERLAP)
        return True

    def ensure_server(self, hosts: Sequence[str], name: str = "server") -> KeyPair:
        """An API server's certificate for these names and addresses, in the files ``name``."""
        return self._ensure_leaf(name, Subject(common_name="kube-apiserver", hosts=tuple(hosts)))

    def ensure_client(self, name: str, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate that authenticates as ``user`` in ``groups``, in the files ``name``."""
        return self._ensure_leaf(name, Subject(common_name=user, organizations=tuple(groups)))

    def ensure_service_account_key(self) -> tuple[Path, Path]:
        """The private and the public key of service-account tokens. Renewed only by ``rotate_service_account_key``."""
        private, public = self._dir / "sa.key", self._dir / "sa.pub"
        if not (private.exists() and public.exists()):
            self._write_service_account_key()
        return private, public

    def rotate_service_account_key(self) -> Path:
        """Sign with a new key from now on. Returns the file that keeps the old one's tokens good."""
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        private, _ = self.ensure_service_account_key()
        key = load_pem_private_key(private.read_bytes(), password=None)
        assert isinstance(key, EllipticCurvePrivateKey)
        public = _public_pem(key)  # not from its file, which an interrupted rotation may have left behind
        kept = self._dir / f"sa-{hashlib.sha256(public).hexdigest()[:16]}.pub"
        write_private(kept, public)
        self._write_service_account_key()
        return kept

    def _write_service_account_key(self) -> None:
        key = _new_key()
        write_private(self._dir / "sa.pub", _public_pem(key))
        write_private(self._dir / "sa.key", _private_pem(key))

    def _ensure_leaf(self, name: str, subject: Subject, authority: str = _CA) -> KeyPair:
        if authority == _CA:
            self.ensure_ca()
        pair = self._pair(name)
        if not self._is_good(name, pair, subject, LEAF_LIFE):
            key = _new_key()
            cert = _certificate(subject, key, self._load_authority(authority), self._now, LEAF_LIFE)
            self._write(name, pair, subject, key, cert, self._now + LEAF_LIFE, authority)
        return pair

    def _pair(self, name: str) -> KeyPair:
        return KeyPair(self._dir / f"{name}.crt", self._dir / f"{name}.key")

    def _load_authority(self, name: str) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
        known = self._authorities.get(name)
        if known is None:
            from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key

            pair = self._pair(name)
            key = load_pem_private_key(pair.key.read_bytes(), password=None)
            if not isinstance(key, EllipticCurvePrivateKey):
                raise TypeError(f"{pair.key} does not hold a P-256 key")
            cert = next((one for one in _certs_in(pair.cert) if one.public_key() == key.public_key()), None)
            if cert is None:
                raise ValueError(f"{pair.cert} has no certificate for {pair.key}")
            known = self._authorities[name] = key, cert
        return known

    def _is_good(self, name: str, pair: KeyPair, subject: Subject, life: timedelta) -> bool:
        entry = self._manifest.get(name)
        if entry is None or entry["subject"] != _described(subject):
            return False
        if datetime.fromtimestamp(entry["not_after"], UTC) - self._now < life * RENEW_AT:
            return False
        return pair.key.exists() and entry["sha256"] == _digest(pair.cert)

    def _write(
        self,
        name: str,
        pair: KeyPair,
        subject: Subject,
        key: EllipticCurvePrivateKey,
        cert: x509.Certificate,
        not_after: datetime,
        authority: str,
    ) -> None:
        write_private(pair.key, _private_pem(key))
        write_private(pair.cert, _cert_pem(cert))
        self._note(name, pair, subject, not_after, authority)
        self._save_manifest()

    def _note(self, name: str, pair: KeyPair, subject: Subject, not_after: datetime, authority: str) -> None:
        self._manifest[name] = {
            "subject": _described(subject),
            "not_after": int(not_after.timestamp()),
            "sha256": _digest(pair.cert),
            "ca": authority,
        }

    def _save_manifest(self) -> None:
        write_private(self._dir / "manifest.json", json.dumps(self._manifest, indent=1).encode())

    def _read_manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads((self._dir / "manifest.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return manifest if isinstance(manifest, dict) else {}


@dataclass(frozen=True, slots=True)
class CaRotation:
    """How far the replacement of an authority is."""

    switch_at: datetime  # when the new one begins to sign
    drop_at: datetime  # when the old one is forgotten
    switched: bool

    @property
    def due_at(self) -> datetime:
        """When the next step is taken."""
        return self.drop_at if self.switched else self.switch_at

    def __str__(self) -> str:
        what = "the old authority is forgotten" if self.switched else "the new authority signs"
        return f"{what} at {self.due_at:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True)
class ServiceAccountKeys:
    """The key that signs and the older ones that still verify, as PEM."""

    signing: bytes
    older: tuple[bytes, ...]


def service_account_keys(directory: Path) -> ServiceAccountKeys:
    """The keys of service-account tokens as they are on disk now."""
    older = sorted(directory.glob("sa-*.pub"))
    return ServiceAccountKeys((directory / "sa.key").read_bytes(), tuple(path.read_bytes() for path in older))


def server_context(server: KeyPair, client_ca: Path, *, http2: bool = False) -> ssl.SSLContext:
    """TLS for a server that accepts, and does not require, client certificates of ``client_ca``; with ``http2`` clients
    may choose that protocol (ALPN)."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE+AESGCM:ECDHE+CHACHA20")  # of TLS 1.2; all of 1.3 are as good
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(server.cert, server.key)
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    if http2:
        context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def kubelet_context(server: KeyPair, client_ca: Path) -> ssl.SSLContext:
    """TLS of a node: it accepts clients with a certificate of ``client_ca`` and authorizes them by its name."""
    import ssl

    context = server_context(server, client_ca)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _described(subject: Subject) -> dict[str, Any]:
    return {"cn": subject.common_name, "o": list(subject.organizations), "hosts": sorted(subject.hosts)}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _private_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _cert_pem(cert: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return cert.public_bytes(Encoding.PEM)


def _certs_in(path: Path) -> list[x509.Certificate]:
    from cryptography import x509

    return x509.load_pem_x509_certificates(path.read_bytes())


def _public_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _certificate(
    subject: Subject,
    key: EllipticCurvePrivateKey,
    authority: tuple[EllipticCurvePrivateKey, x509.Certificate | None],
    now: datetime,
    life: timedelta,
) -> x509.Certificate:
    """A certificate for ``key``, signed by ``authority``; one whose authority has no certificate is the authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    signing_key, issuer = authority
    name = _name(subject)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    for extension, critical in _extensions(subject, is_authority=issuer is None):
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signing_key, hashes.SHA256())


def _name(subject: Subject) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    # Kubernetes reads each O as one group; organizations come first so that the name reads O=..., CN=... as its own do.
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in subject.organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name)])


def _extensions(subject: Subject, *, is_authority: bool) -> list[tuple[x509.ExtensionType, bool]]:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), True),
        (usage, True),
    ]
    if is_authority:
        return made
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if subject.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    made.append((x509.ExtendedKeyUsage([purpose]), False))
    if subject.hosts:
        made.append((x509.SubjectAlternativeName([_host(host) for host in subject.hosts]), False))
    return made


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
