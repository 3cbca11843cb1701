"""Certificate signing requests and certificates as tests need them."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from shoal.app.pki import KeyPair

CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
NODE = ("system:node:n1", ("system:nodes",))


def subject(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    items = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    if common_name:
        items.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return x509.Name(items)


_NAMES: dict[str, Callable[[str], x509.GeneralName]] = {
    "dns": x509.DNSName,
    "ip": lambda value: x509.IPAddress(ipaddress.ip_address(value)),
    "email": x509.RFC822Name,
    "uri": x509.UniformResourceIdentifier,
}


def alternatives(names: Sequence[str]) -> x509.SubjectAlternativeName:
    """``dns=n1``, ``ip=10.0.0.1``, ``email=a@example.com``, ``uri=https://a``."""
    parted = (name.partition("=") for name in names)
    return x509.SubjectAlternativeName([_NAMES[kind](value) for kind, _, value in parted])


def new_request(common_name: str, groups: Sequence[str] = (), names: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """A request and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject(common_name, groups))
    if names:
        builder = builder.add_extension(alternatives(names), critical=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), private


def a_csr(
    name: str, signer: str, usages: Sequence[str], request: bytes, *, seconds: int | None = None
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "signerName": signer,
        "usages": list(usages),
        "request": base64.b64encode(request).decode(),
    }
    if seconds is not None:
        spec["expirationSeconds"] = seconds
    return {"metadata": {"name": name}, "spec": spec}


def a_certificate(
    authority: KeyPair,
    name: x509.Name,
    *,
    purposes: Sequence[ObjectIdentifier] | None = (ExtendedKeyUsageOID.CLIENT_AUTH,),
    starts: datetime | None = None,
    life: timedelta = timedelta(hours=1),
) -> tuple[bytes, bytes]:
    """A certificate signed by an authority of files, and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.cert.read_bytes())
    signing: Any = load_pem_private_key(authority.key.read_bytes(), None)
    starts = starts or datetime.now(UTC) - timedelta(minutes=1)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(starts + life)
    )
    if purposes is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return builder.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM), private


def der_of(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
