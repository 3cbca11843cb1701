"""PodCertificateRequest: a node asks a signer for a certificate for a pod; the signer issues, denies or fails it once.

Validation is pure; that a certificate begins about now is checked by the server, which has a clock
(``shoal.apiserver.authn.certificate_rules``).
"""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from shoal.errors import FieldError, invalid, not_supported, required, too_long
from shoal.kube.kinds.access.signing import check_signer_name
from shoal.kube.kinds.access.trust_bundle import pem_blocks
from shoal.kube.kinds.checks import ANNOTATIONS_LIMIT_BYTES, Errors, check_conditions, size_bytes
from shoal.kube.kinds.common import check_frozen, condition_is, deep_same, fill, read, spec_of
from shoal.kube.names import is_dns1123_subdomain, is_qualified_name
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules
from shoal.kube.times import parse_time

if TYPE_CHECKING:
    from cryptography import x509

_DEFAULT_S: Final = 86_400
_LEAST_S, _MOST_S, _MOST_KUBERNETES_S = 3600, 91 * 86_400, 86_400
_MAX_REQUEST: Final = 10 * 1024
_MAX_CHAIN: Final = 100 * 1024
_MAX_UID: Final = 128
_MARGIN: Final = timedelta(minutes=10)
_REQUEST, _CHAIN = "spec.stubPKCS10Request", "status.certificateChain"
_ENDS: Final = ("Issued", "Denied", "Failed")
_NAMES: Final = (("podName", "podUID"), ("serviceAccountName", "serviceAccountUID"), ("nodeName", "nodeUID"))
_TIMES: Final = {
    "notBefore": "must be present and consistent with the issued certificate",
    "notAfter": "must be present and consistent with the issued certificate",
    "beginRefreshAt": "must be present and in the range [notbefore+10min, notafter-10min]",
}


def _default(obj: Obj) -> None:
    fill(spec_of(obj), "maxExpirationSeconds", _DEFAULT_S)


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    spec = read(obj, "spec")
    signer = spec.get("signerName") or ""
    check_signer_name(signer, "spec.signerName", errors)
    _check_user_annotations(spec.get("unverifiedUserAnnotations") or {}, errors)
    for name, uid in _NAMES:
        errors.extend(invalid(f"spec.{name}", spec.get(name) or "", fault)
                      for fault in is_dns1123_subdomain(spec.get(name) or ""))  # fmt: skip
        if not spec.get(uid):
            errors.append(invalid(f"spec.{uid}", "", "must not be empty"))
        elif size_bytes(spec[uid]) > _MAX_UID:
            errors.append(too_long(f"spec.{uid}", _MAX_UID))
    seconds = spec.get("maxExpirationSeconds") or 0
    most = _MOST_KUBERNETES_S if _is_kubernetes(signer) else _MOST_S
    if not _LEAST_S <= seconds <= most:
        errors.append(invalid("spec.maxExpirationSeconds", seconds, f"must be in the range [{_LEAST_S}, {most}]"))
    _check_request(spec.get("stubPKCS10Request") or "", errors)
    return errors


def _is_kubernetes(signer: str) -> bool:
    domain = signer.partition("/")[0]
    return domain == "kubernetes.io" or domain.endswith(".kubernetes.io")


def _check_user_annotations(annotations: Obj, errors: Errors) -> None:
    path, total = "spec.unverifiedUserAnnotations", 0
    for key, value in annotations.items():
        lowered = key.lower()
        if "/" not in lowered or is_qualified_name(lowered):
            errors.append(invalid(path, key, 'must be a domain-prefixed key (such as "acme.io/foo")'))
        total += size_bytes(key) + size_bytes(value)
    if total > ANNOTATIONS_LIMIT_BYTES:
        errors.append(too_long(path, ANNOTATIONS_LIMIT_BYTES))


def _check_request(text: str, errors: Errors) -> None:
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) > _MAX_REQUEST:
        errors.append(too_long(_REQUEST, _MAX_REQUEST))
        return
    fault = _request_fault(content)
    if fault:
        errors.append(invalid(_REQUEST, text, fault))


def _request_fault(content: bytes) -> str:
    from cryptography import x509  # large, and only needed here
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        request = x509.load_der_x509_csr(content)
        key, valid = request.public_key(), request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
        return "must be a valid PKCS#10 CSR"
    return _key_fault(key) or ("" if valid else "the signature of the CSR does not match its key")


def _key_fault(key: Any) -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    match key:
        case ed25519.Ed25519PublicKey():
            return ""
        case ec.EllipticCurvePublicKey():
            allowed = isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1)
            return "" if allowed else "elliptic public keys must use curve P256, P384, or P521"
        case rsa.RSAPublicKey():
            return "" if key.key_size in (3072, 4096) else "RSA keys must have modulus size 3072 or 4096"
        case _:
            return "unknown public key type; supported types are Ed25519, ECDSA, and RSA"


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    check_frozen(read(new, "spec"), read(old, "spec"), "spec", errors)
    return errors


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    errors: Errors = []
    status = read(new, "status")
    conditions: list[Obj] = status.get("conditions") or []
    _check_ends(conditions, errors)
    check_conditions(conditions, "status.conditions", errors)
    if errors:
        return errors  # the rest follows from the conditions
    if ended(old):
        if not deep_same(status, read(old, "status")):
            text = "immutable after PodCertificateRequest is issued, denied, or failed"
            errors.append(invalid("status", status, text))
        return errors
    rest = {name: value for name, value in status.items() if name != "conditions" and value}
    if condition_is(conditions, "Issued"):
        _check_issued(read(new, "spec"), status, errors)
    elif rest:
        text = "non-condition status fields must be empty when denying or failing the PodCertificateRequest"
        if not conditions:
            text = "may not be set unless the PodCertificateRequest is issued, denied, or failed"
        errors.append(invalid("status", rest, text))
    return errors


def ended(obj: Obj) -> bool:
    """Whether its signer has decided."""
    conditions = read(obj, "status").get("conditions")
    return any(condition_is(conditions, end) for end in _ENDS)


def _check_ends(conditions: list[Obj], errors: Errors) -> None:
    for position, condition in enumerate(conditions):
        path, kind = f"status.conditions[{position}]", condition.get("type") or ""
        if kind not in _ENDS:
            errors.append(not_supported(f"{path}.type", kind, _ENDS))
            continue
        if position:
            text = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            errors.append(invalid(f"{path}.type", kind, text))
        if condition.get("status") != "True":
            errors.append(not_supported(f"{path}.status", condition.get("status") or "", ("True",)))


def _check_issued(spec: Obj, status: Obj, errors: Errors) -> None:
    chain = status.get("certificateChain") or ""
    if len(chain) > _MAX_CHAIN:
        errors.append(too_long(_CHAIN, _MAX_CHAIN))
        return
    leaf, fault = _leaf(chain)
    if leaf is None:
        errors.append(invalid(_CHAIN, chain, fault))
        return
    if _public_bytes(leaf) != _requested_bytes(spec):
        errors.append(invalid(_CHAIN, chain, "leaf certificate was not issued to the requested public key"))
        return
    missing = [name for name in _TIMES if not status.get(name)]
    errors.extend(required(f"status.{name}", _TIMES[name]) for name in missing)
    if not missing:
        _check_times(spec, {name: parse_time(status[name]) for name in _TIMES}, leaf, errors)


def _leaf(chain: str) -> tuple[x509.Certificate | None, str]:
    """The first certificate, if all of them are some."""
    from cryptography import x509

    blocks = list(pem_blocks(chain))
    if not blocks:
        return None, "issued certificate chain must contain at least one certificate"
    found: list[x509.Certificate] = []
    for number, (kind, _, content) in enumerate(blocks):
        if kind != "CERTIFICATE":
            return None, "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        try:
            found.append(x509.load_der_x509_certificate(content))
        except ValueError:
            shown = "leaf" if not number else "intermediate"
            return None, f"{shown} certificate does not parse as valid X.509"
    return found[0], ""


def _public_bytes(held: x509.Certificate | x509.CertificateSigningRequest) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return held.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _requested_bytes(spec: Obj) -> bytes:
    from cryptography import x509

    return _public_bytes(x509.load_der_x509_csr(base64.b64decode(spec["stubPKCS10Request"])))


def _check_times(spec: Obj, said: dict[str, datetime], leaf: x509.Certificate, errors: Errors) -> None:
    begin, end, refresh = said["notBefore"], said["notAfter"], said["beginRefreshAt"]
    lifetime = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    most_s = spec.get("maxExpirationSeconds") or 0
    for wrong, path, value, text in (
        (begin != leaf.not_valid_before_utc, "status.notBefore", begin,
         "must be set to the NotBefore time encoded in the leaf certificate"),
        (end != leaf.not_valid_after_utc, "status.notAfter", end,
         "must be set to the NotAfter time encoded in the leaf certificate"),
        (lifetime < timedelta(hours=1), _CHAIN, lifetime, "leaf certificate lifetime must be >= 1 hour"),
        (lifetime > timedelta(seconds=most_s), _CHAIN, lifetime,
         f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most_s})"),
        (refresh < begin + _MARGIN, "status.beginRefreshAt", refresh,
         "must be at least 10 minutes after status.notBefore"),
        (refresh > end - _MARGIN, "status.beginRefreshAt", refresh,
         "must be at least 10 minutes before status.notAfter"),
    ):  # fmt: skip
        if wrong:
            errors.append(invalid(path, str(value), text))
            return


def _signer(obj: Obj) -> str:
    return read(obj, "spec").get("signerName") or ""


def _node(obj: Obj) -> str:
    return read(obj, "spec").get("nodeName") or ""


RULES: Final = KindRules(
    default=_default,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    selectable={"spec.signerName": _signer, "spec.nodeName": _node},
)
