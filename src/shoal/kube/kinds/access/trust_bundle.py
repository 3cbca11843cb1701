"""ClusterTrustBundle: certificates of authorities, for a signer or for a purpose that only its users know."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Final

from shoal.errors import FieldError, invalid, too_long
from shoal.kube.kinds.access.signing import check_signer_name
from shoal.kube.kinds.checks import Errors, path_segment_name
from shoal.kube.kinds.common import check_frozen, read
from shoal.kube.names import is_dns1123_subdomain
from shoal.kube.objects import Obj
from shoal.kube.rules import KindRules

_BUNDLE: Final = "spec.trustBundle"
_MAX_BYTES: Final = 1024 * 1024
_OMITTED: Final = "<value omitted>"
_BLOCK: Final = re.compile(r"-----BEGIN ([^\n-]+)-----[ \t]*\r?\n(.*?)-----END \1-----", re.DOTALL)


def _signer(obj: Obj) -> str:
    return read(obj, "spec").get("signerName") or ""


def _check_name(name: str, signer: str, errors: Errors) -> None:
    """Names of a signer's bundles begin with the signer's name, so that rights can be granted by prefix."""
    rest = name
    if signer:
        prefix = signer.replace("/", ":") + ":"
        if not name.startswith(prefix):
            text = f"ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
            errors.append(invalid("metadata.name", name, text))
            return
        rest = name.removeprefix(prefix)
    elif ":" in name:
        text = 'ClusterTrustBundle without signer name must not have ":" in its name'
        errors.append(invalid("metadata.name", name, text))
        return
    errors.extend(invalid("metadata.name", name, fault) for fault in is_dns1123_subdomain(rest))


def pem_blocks(text: str) -> Iterator[tuple[str, bool, bytes]]:
    """Type, whether it has headers, and content of each PEM block. Text between them is ignored."""
    for found in _BLOCK.finditer(text):
        kind, content = found.groups()
        head, empty, rest = content.replace("\r\n", "\n").partition("\n\n")
        headers = bool(empty) and ":" in head
        try:
            yield kind, headers, base64.b64decode("".join((rest if headers else content).split()), validate=True)
        except (binascii.Error, ValueError):
            continue


def _check_bundle(text: str, errors: Errors) -> None:
    if len(text) > _MAX_BYTES:
        errors.append(too_long(_BUNDLE, _MAX_BYTES))
        return
    places: dict[bytes, list[int]] = {}
    before = len(errors)
    for number, (kind, headers, content) in enumerate(pem_blocks(text)):
        fault = f"has bad block type: {kind}" if kind != "CERTIFICATE" else "has PEM block headers" if headers else ""
        fault = fault or _certificate_fault(content)
        if fault:
            errors.append(invalid(_BUNDLE, _OMITTED, f"entry {number} {fault}"))
        else:
            places.setdefault(content, []).append(number)
    if len(errors) > before:
        return
    if not places:
        errors.append(invalid(_BUNDLE, _OMITTED, "at least one trust anchor must be provided"))
    for numbers in places.values():
        if len(numbers) > 1:
            shown = " ".join(map(str, numbers))
            errors.append(invalid(_BUNDLE, _OMITTED, f"duplicate trust anchor (indices [{shown}])"))


def _certificate_fault(content: bytes) -> str:
    from cryptography import x509  # large, and only needed here

    try:
        certificate = x509.load_der_x509_certificate(content)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return "does not have the CA bit set"
    except (ValueError, x509.DuplicateExtension):
        return "does not parse as X.509"
    return "" if constraints.ca else "does not have the CA bit set"


def _validate(obj: Obj) -> list[FieldError]:
    return _checked(obj, None)


def _validate_update(new: Obj, old: Obj) -> list[FieldError]:
    errors = _checked(new, read(old, "spec").get("trustBundle") or "")
    check_frozen(_signer(new), _signer(old), "spec.signerName", errors)
    return errors


def _checked(obj: Obj, stored: str | None) -> list[FieldError]:
    errors: Errors = []
    signer, bundle = _signer(obj), read(obj, "spec").get("trustBundle") or ""
    _check_name(obj["metadata"].get("name") or "", signer, errors)
    if signer:
        check_signer_name(signer, "spec.signerName", errors)
    if bundle != stored:  # one that is stored is not parsed again
        _check_bundle(bundle, errors)
    return errors


RULES: Final = KindRules(
    validate_create=_validate,
    validate_update=_validate_update,
    name_errors=path_segment_name,
    selectable={"spec.signerName": _signer},
)
