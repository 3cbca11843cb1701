"""Client certificates: the common name is the user, organizations are the groups.

The TLS layer has verified the chain before a certificate gets here. This module checks the validity
period, which can end while a connection is open, and the key usage.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from shoal.apiserver.authn.credential import AUTHENTICATED, CREDENTIAL_ID, Credential
from shoal.apiserver.user import User
from shoal.base.clock import Clock

if TYPE_CHECKING:
    from cryptography import x509

_CACHE_LIMIT = 10_000
_UID_OID = "1.3.6.1.4.1.57683.2"


class ClientCertificates:
    """Users by their certificates. A connection hands in the same bytes with each request, whose hash is kept with
    them, so that only a connection's first request costs more than a look-up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[bytes, Credential | None] = {}  # None: can never be used

    def user_of(self, der: bytes) -> User | None:
        """The user of a certificate; None when it has no common name, is not for clients, or is not valid now."""
        try:
            known = self._known[der]
        except KeyError:
            known = self._read(der)
        if known is None or self._clock.wall_s() >= known.not_after:
            return None
        return known.user

    def _read(self, der: bytes) -> Credential | None:
        from cryptography import x509

        try:
            certificate = x509.load_der_x509_certificate(der)
            if self._clock.now() < certificate.not_valid_before_utc:
                return None  # not cached: it becomes valid later
            credential = _credential(certificate, der)
        except ValueError:
            credential = None
        if len(self._known) >= _CACHE_LIMIT:
            self._known.clear()
        self._known[der] = credential
        return credential


def _credential(certificate: x509.Certificate, der: bytes) -> Credential | None:
    from cryptography.x509.oid import NameOID, ObjectIdentifier

    subject = certificate.subject
    names = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not names or not names[-1] or not _for_clients(certificate):
        return None
    groups = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    uids = [str(item.value) for item in subject.get_attributes_for_oid(ObjectIdentifier(_UID_OID))]
    if len(uids) > 1:
        return None
    user = User(
        names[-1],
        tuple(dict.fromkeys((*groups, AUTHENTICATED))),
        uids[0] if uids else "",
        ((CREDENTIAL_ID, (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)),),
    )
    return Credential(user, certificate.not_valid_after_utc.timestamp())


def _for_clients(certificate: x509.Certificate) -> bool:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        purposes = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True  # a certificate that names no purpose is for all of them
    return ExtendedKeyUsageOID.CLIENT_AUTH in purposes or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in purposes
