"""The signers of Kubernetes: which certificate requests each of them takes, and the certificate it makes.

Pure except for the serial number. A request that breaks its signer's rules gets the reason in Kubernetes' words.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shoal.apiserver.authz.authorizer import MASTERS
from shoal.kube.kinds.bootstrap_rbac import KUBELET_CLIENT as API_SERVER_USER
from shoal.kube.kinds.bootstrap_rbac import KUBELET_CLIENT_GROUP
from shoal.kube.objects import Obj

if TYPE_CHECKING:
    from cryptography import x509

API_CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"

NODES, NODE = "system:nodes", "system:node:"
LONGEST = timedelta(days=365)
_SHORTEST = timedelta(minutes=10)
_BACKDATE = timedelta(minutes=5)
_SHORT = timedelta(hours=8)  # from here on the five minutes may come off the end
_OPTIONAL_OF_CLIENTS = frozenset({"digital signature", "key encipherment"})
_KUBELET_CLIENT_USAGES = frozenset({"client auth", "digital signature", "key encipherment"})
_KUBELET_SERVING_USAGES = frozenset({"digital signature", "key encipherment", "server auth"})
_ONLY_RSA = frozenset({"key encipherment"})
_NAME_KINDS = {"DNSName": "DNS", "RFC822Name": "Email", "IPAddress": "IP", "UniformResourceIdentifier": "URI"}

_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
}
_PURPOSES = {"client auth": "CLIENT_AUTH", "server auth": "SERVER_AUTH"}


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate and the key that sign, as PEM."""

    certificate: bytes
    key: bytes


class CertificateRequest:
    """The parsed PKCS#10 request of a CertificateSigningRequest."""

    def __init__(self, csr: Obj) -> None:
        from cryptography import x509

        spec = csr["spec"]
        self.usages: tuple[str, ...] = tuple(spec.get("usages") or ())
        self.seconds: int | None = spec.get("expirationSeconds")
        self.signer: str = spec.get("signerName") or ""
        self.parsed = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))

    @cached_property
    def organizations(self) -> list[str]:
        from cryptography.x509.oid import NameOID

        return [str(item.value) for item in self.parsed.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]

    @cached_property
    def common_names(self) -> list[str]:
        from cryptography.x509.oid import NameOID

        return [str(item.value) for item in self.parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]

    @property
    def common_name(self) -> str:
        return self.common_names[-1] if self.common_names else ""

    @cached_property
    def alternatives(self) -> x509.SubjectAlternativeName | None:
        from cryptography import x509

        try:
            return self.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return None

    def has(self, *kinds: str) -> bool:
        """Whether the request has a subject alternative name of one of these kinds (keys of ``_NAME_KINDS``)."""
        from cryptography import x509

        wanted = tuple(getattr(x509, kind) for kind in kinds)
        return self.alternatives is not None and any(isinstance(name, wanted) for name in self.alternatives)


# --- which requests a signer takes


def reserved_name(names: Iterable[str], groups: Iterable[str]) -> str:
    """The name or group of a subject that no request may have, since the server's own certificates have it or it gives
    every right; empty without one."""
    for group in groups:
        if group in (MASTERS, KUBELET_CLIENT_GROUP):
            return f"{group} group"
    return next((f"user {name}" for name in names if name == API_SERVER_USER), "")


def _client_fault(request: CertificateRequest) -> str:
    if reserved := reserved_name(request.common_names, request.organizations):
        return f"{reserved} is not allowed"
    for usage in request.usages:
        if usage not in _OPTIONAL_OF_CLIENTS and usage != "client auth":
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in request.usages else "missing required usage for client certificate: client auth"


def kubelet_client_fault(request: CertificateRequest) -> str:
    """Why this is not a valid request of a node for its own client certificate; empty when it is."""
    if request.organizations != [NODES]:
        return "subject organization is not system:nodes"
    for kind, name in _NAME_KINDS.items():
        if request.has(kind):
            return f"{name} subjectAltNames are not allowed"
    if not request.common_name.startswith(NODE):
        return "subject common name does not begin with system:node:"
    return _usage_fault(request.usages, _KUBELET_CLIENT_USAGES)


def _kubelet_serving_fault(request: CertificateRequest) -> str:
    if request.organizations != [NODES]:
        return "subject organization is not system:nodes"
    if not request.has("DNSName", "IPAddress"):
        return "DNS or IP subjectAltName is required"
    for kind in ("RFC822Name", "UniformResourceIdentifier"):
        if request.has(kind):
            return f"{_NAME_KINDS[kind]} subjectAltNames are not allowed"
    fault = _usage_fault(request.usages, _KUBELET_SERVING_USAGES)
    if not fault and not request.common_name.startswith(NODE):
        fault = "subject common name does not begin with system:node:"
    return fault


def _usage_fault(usages: Sequence[str], allowed: frozenset[str]) -> str:
    if frozenset(usages) in (allowed, allowed - _ONLY_RSA):
        return ""
    return f"usages did not match [{' '.join(sorted(allowed))}]"


FAULTS: dict[str, Callable[[CertificateRequest], str]] = {
    API_CLIENT: _client_fault,
    KUBELET_CLIENT: kubelet_client_fault,
    KUBELET_SERVING: _kubelet_serving_fault,
}


# --- the certificate


def life_of(seconds: int | None) -> timedelta:
    """The lifetime of a certificate that requests ``seconds``: between ``_SHORTEST`` and ``LONGEST``."""
    if seconds is None:
        return LONGEST
    return min(max(timedelta(seconds=seconds), _SHORTEST), LONGEST)


class CertificateMaker:
    """Signs with one authority."""

    def __init__(self, authority: Authority) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        self._key: Any = load_pem_private_key(authority.key, None)
        found = x509.load_pem_x509_certificates(authority.certificate)  # while it is replaced, two are trusted
        self._certificate = next((one for one in found if one.public_key() == self._key.public_key()), found[0])

    def make(self, request: CertificateRequest, now: datetime) -> bytes:
        """The certificate, as PEM: the subject and names of the request, the usages its signer has agreed to."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.serialization import Encoding
        from cryptography.x509.oid import ExtendedKeyUsageOID

        life = life_of(request.seconds)
        ends = now + (life if life < _SHORT else life - _BACKDATE)
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.parsed.subject)
            .issuer_name(self._certificate.subject)
            .public_key(request.parsed.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATE)
            .not_valid_after(min(ends, self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        asked = {_KEY_USAGES[usage] for usage in request.usages if usage in _KEY_USAGES}
        if asked:
            builder = builder.add_extension(_key_usage(asked), critical=True)
        purposes = [getattr(ExtendedKeyUsageOID, _PURPOSES[usage]) for usage in request.usages if usage in _PURPOSES]
        if purposes:
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        if request.alternatives is not None:
            builder = builder.add_extension(request.alternatives, critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _key_usage(asked: set[str]) -> x509.KeyUsage:
    from cryptography import x509

    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    flags = {name: name in asked for name in names}
    return x509.KeyUsage(**flags, key_cert_sign=False, crl_sign=False, encipher_only=False, decipher_only=False)
