"""CertificateSigningRequest: written once, approved or denied once, and given a certificate once.

Only the server knows the requester and the times of conditions: it calls ``stamp_requester`` on create and
``stamp_conditions`` on ``/status`` and ``/approval``, after the prepare step. ``/approval`` is prepared by
``prepare_approval`` and validated by the entry of that name in ``subresource_validation``.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final

from shoal.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from shoal.kube.kinds.checks import CONDITION_STATUSES, Errors, path_segment_name
from shoal.kube.kinds.common import child, deep_same, read, spec_of
from shoal.kube.names import DNS1123_SUBDOMAIN_MAX, is_dns1123_label, is_dns1123_subdomain
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_LEGACY_SIGNER: Final = "kubernetes.io/legacy-unknown"
_MAX_SIGNER: Final = 2 * DNS1123_SUBDOMAIN_MAX + 63 + 2
_MIN_EXPIRATION_S: Final = 600
_USAGES: Final = frozenset(
    {
        "any",
        "cert sign",
        "client auth",
        "code signing",
        "content commitment",
        "crl sign",
        "data encipherment",
        "decipher only",
        "digital signature",
        "email protection",
        "encipher only",
        "ipsec end system",
        "ipsec tunnel",
        "ipsec user",
        "key agreement",
        "key encipherment",
        "microsoft sgc",
        "netscape sgc",
        "ocsp signing",
        "s/mime",
        "server auth",
        "signing",
        "timestamping",
    }
)
_REQUESTER: Final = ("username", "uid", "groups", "extra")
_APPROVAL: Final = ("Approved", "Denied")
_ONLY_TRUE: Final = frozenset({"Approved", "Denied", "Failed"})


# --- fields that the server sets


def stamp_requester(
    csr: Obj, *, username: str, uid: str, groups: Sequence[str], extra: Mapping[str, Sequence[str]]
) -> None:
    """Write the requester into the spec."""
    spec = spec_of(csr)
    spec["username"] = username
    if uid:
        spec["uid"] = uid
    if groups:
        spec["groups"] = list(groups)
    if extra:
        spec["extra"] = {name: list(values) for name, values in extra.items()}


def stamp_conditions(new: Obj, old: Obj, now: str) -> None:
    """Set the missing times of conditions; ``now`` is a Time."""
    before = {(c.get("type"), c.get("status")): c for c in read(old, "status").get("conditions") or ()}
    for condition in read(new, "status").get("conditions") or ():
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            known = before.get((condition.get("type"), condition.get("status"))) or {}
            condition["lastTransitionTime"] = known.get("lastTransitionTime") or now


# --- prepare


def _prepare_create(obj: Obj) -> None:
    spec = spec_of(obj)
    for name in _REQUESTER:
        spec.pop(name, None)


def _prepare_update(new: Obj, old: Obj) -> None:
    """The spec never changes."""
    new["spec"] = old.get("spec") or {}


def _prepare_status(new: Obj, old: Obj) -> None:
    """Keep the stored approval conditions: a signer only writes back what it has read, possibly with other times."""
    after = read(new, "status").get("conditions") or []
    before = read(old, "status").get("conditions") or []
    for kind in _APPROVAL:
        mine = [position for position, condition in enumerate(after) if condition.get("type") == kind]
        theirs = [condition for condition in before if condition.get("type") == kind]
        if len(mine) == len(theirs):
            for position, condition in zip(mine, theirs, strict=True):
                after[position] = condition


def prepare_approval(new: Obj, old: Obj) -> None:
    """On ``/approval`` a client can change only the conditions."""
    conditions = read(new, "status").get("conditions")
    new["spec"] = old.get("spec") or {}
    new["status"] = dict(read(old, "status"))
    if conditions is not None:
        child(new, "status")["conditions"] = conditions


# --- validate


def _request_fault(request: str) -> str:
    """The error in the PEM text of a request; empty if valid."""
    from cryptography import x509  # large, and only needed here
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        pem = base64.b64decode(request, validate=True)
    except (binascii.Error, ValueError):
        pem = b""
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        valid = x509.load_pem_x509_csr(pem).is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
        return str(error) or "the request cannot be parsed"
    return "" if valid else "x509: the signature of the request does not match its key"


def _certificate_fault(certificate: str) -> str:
    from cryptography import x509

    try:
        pem = base64.b64decode(certificate, validate=True)
    except (binascii.Error, ValueError):
        pem = b""
    blocks = pem.count(b"-----BEGIN ")
    if not blocks:
        return "must contain at least one CERTIFICATE PEM block"
    if pem.count(b"-----BEGIN CERTIFICATE-----") != blocks:
        return "only CERTIFICATE PEM blocks are allowed"
    try:
        x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return str(error)
    return ""


def check_signer_name(name: str, path: str, errors: Errors) -> None:
    """``example.com/signer-name``."""
    if not name:
        errors.append(required(path))
        return
    parts = name.split("/")
    if len(parts) != 2:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errors.append(invalid(path, name, text))
        return
    domain, rest = parts
    if len(domain) > DNS1123_SUBDOMAIN_MAX:
        errors.append(too_long(path, DNS1123_SUBDOMAIN_MAX))
    labels = domain.split(".")
    for shown, words, syntax in ((domain, labels, is_dns1123_label), (rest, rest.split("."), is_dns1123_subdomain)):
        for word in words:
            faults = syntax(word)
            errors.extend(invalid(path, shown, f'validating label "{word}": {fault}') for fault in faults)
            if faults:
                break
        if shown is domain and len(labels) < 2:
            text = "should be a domain with at least two segments separated by dots"
            errors.append(invalid(path, domain, text))
    if len(name) > _MAX_SIGNER:
        errors.append(too_long(path, _MAX_SIGNER))


def _check_spec(spec: Obj, errors: Errors) -> None:
    request = spec.get("request") or ""
    fault = _request_fault(request)
    if fault:
        errors.append(invalid("spec.request", request, fault))
    usages = spec.get("usages") or ()
    if not usages:
        errors.append(required("spec.usages"))
    for position, usage in enumerate(usages):
        if usage not in _USAGES:
            errors.append(not_supported(f"spec.usages[{position}]", usage, _USAGES))
        if usage in usages[:position]:
            errors.append(duplicate(f"spec.usages[{position}]", usage))
    signer = spec.get("signerName") or ""
    if signer == _LEGACY_SIGNER:
        text = "the legacy signerName is not allowed via this API version"
        errors.append(invalid("spec.signerName", signer, text))
    else:
        check_signer_name(signer, "spec.signerName", errors)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_EXPIRATION_S:
        text = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.append(invalid("spec.expirationSeconds", seconds, text))


def _check_conditions(status: Obj, errors: Errors) -> None:
    path = "status.conditions"
    seen: set[str] = set()
    for position, condition in enumerate(status.get("conditions") or ()):
        where, kind = f"{path}[{position}]", condition.get("type") or ""
        if not kind:
            errors.append(required(f"{where}.type"))
        allowed = ("True",) if kind in _ONLY_TRUE else CONDITION_STATUSES
        value = condition.get("status")
        if not value:
            errors.append(required(f"{where}.status"))
        elif value not in allowed:
            errors.append(not_supported(f"{where}.status", value, allowed))
        if kind in _APPROVAL and seen.intersection(_APPROVAL) - {kind}:
            errors.append(invalid(path, kind, "Approved and Denied conditions are mutually exclusive"))
        if kind in seen:
            errors.append(duplicate(f"{where}.type", kind))
        seen.add(kind)


def _of_type(status: Obj, kind: str) -> list[Obj]:
    return [condition for condition in status.get("conditions") or () if condition.get("type") == kind]


def _validate(obj: Obj) -> list[FieldError]:
    errors: Errors = []
    _check_spec(read(obj, "spec"), errors)
    return errors


def _check_update(new: Obj, old: Obj, *, approving: bool, signing: bool) -> list[FieldError]:
    errors: Errors = []
    status, before = read(new, "status"), read(old, "status")
    _check_conditions(status, errors)
    for kind in ("Approved", "Denied", "Failed"):
        mine, theirs = _of_type(status, kind), _of_type(before, kind)
        if len(mine) < len(theirs):
            text = f'updates may not remove a condition of type "{kind}"'
        elif approving or kind == "Failed" or deep_same(mine, theirs):
            continue
        else:
            verb = "add" if len(mine) > len(theirs) else "modify"
            text = f'updates may not {verb} a condition of type "{kind}"'
        errors.append(forbidden("status.conditions", text))
    _check_certificate(status.get("certificate") or "", before.get("certificate") or "", signing, errors)
    return errors


def _check_certificate(certificate: str, before: str, signing: bool, errors: Errors) -> None:
    if certificate == before:
        return
    path = "status.certificate"
    if certificate:
        fault = _certificate_fault(certificate)
        if fault:
            errors.append(invalid(path, "<certificate data>", fault))
    if not signing:
        errors.append(forbidden(path, "updates may not set certificate content"))
    elif before:
        errors.append(forbidden(path, "updates may not modify existing certificate content"))


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    return _check_update(new, old, approving=False, signing=False)


def _validate_status(new: Obj, old: Obj) -> list[FieldError]:
    return _check_update(new, old, approving=False, signing=True)


def _validate_approval(new: Obj, old: Obj) -> list[FieldError]:
    return _check_update(new, old, approving=True, signing=False)


def _signer(obj: Obj) -> str:
    return read(obj, "spec").get("signerName") or ""


RULES: Final = KindRules(
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    prepare_status=_prepare_status,
    validate_create=_validate,
    validate_update=_validate_update,
    validate_status=_validate_status,
    name_errors=path_segment_name,
    selectable={"spec.signerName": _signer},
    subresource_prepare={"approval": prepare_approval},
    subresource_validation={"approval": _validate_approval},
)
