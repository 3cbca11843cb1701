"""Certificates for tests: one authority, and what it signs."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shoal.sentinel.model import TlsSecret

_YEAR = dt.timedelta(days=365)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_pem(key: ec.EllipticCurvePrivateKey) -> str:
    public = key.public_key()
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo).decode()


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Authority:
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)

    def __post_init__(self) -> None:
        made = self._builder("test authority", self.key).add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _builder(self, subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name("test authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _YEAR)
            .not_valid_after(now + _YEAR)
        )

    def secret(self, name: str, host: str) -> TlsSecret:
        key = new_key()
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        made = self._builder(host, key).add_extension(names, False).sign(self.key, hashes.SHA256())
        return TlsSecret(
            name=name,
            certificate=made.public_bytes(serialization.Encoding.PEM),
            key=key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            authority=self.certificate,
        )
