"""Volumes made of API objects: secrets, config maps, fields of the pod, tokens and certificates."""

from __future__ import annotations

from typing import Final

from shoal.errors import forbidden, invalid, required, too_long
from shoal.kube.kinds.checks import (
    ANNOTATIONS_LIMIT_BYTES,
    Errors,
    Syntax,
    check_enum,
    check_label_selector,
    check_syntax,
    size_bytes,
)
from shoal.kube.kinds.core.env import VOLUME_FIELDS, check_field_ref, check_resource_field_ref
from shoal.kube.kinds.core.paths import check_local, check_mode
from shoal.kube.names import DNS1123_SUBDOMAIN_MAX, is_dns1123_label, is_dns1123_subdomain, is_prefixed_label_key
from shoal.kube.objects import Obj

_KEY_TYPES: Final = frozenset({"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"})
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
_DAY_S = 24 * 3600
_SOURCES = ("secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate")


def check_key_items(items: list[Obj] | None, path: str, errors: Errors) -> None:
    """The files for keys of a config map or secret."""
    for index, item in enumerate(items or ()):
        where = f"{path}[{index}]"
        for field in ("key", "path"):
            if not item.get(field):
                errors.append(required(f"{where}.{field}"))
        check_local(item.get("path", ""), f"{where}.path", errors)
        check_mode(item.get("mode"), f"{where}.mode", errors)


def check_downward_items(items: list[Obj] | None, path: str, errors: Errors) -> None:
    """The files for fields of the pod. Errors have ``path`` without the index of the item."""
    for item in items or ():
        if not item.get("path"):
            errors.append(required(f"{path}.path"))
        check_local(item.get("path", ""), f"{path}.path", errors)
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if field is not None:
            check_field_ref(field, VOLUME_FIELDS, f"{path}.fieldRef", errors)
            if resource is not None:
                detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
                errors.append(invalid(path, "resource", detail))
        elif resource is not None:
            check_resource_field_ref(resource, f"{path}.resourceFieldRef", errors, in_volume=True)
        else:
            errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
        check_mode(item.get("mode"), f"{path}.mode", errors)


def check_projected(volume: Obj, path: str, errors: Errors) -> None:
    check_mode(volume.get("defaultMode"), f"{path}.defaultMode", errors)
    taken: set[str] = set()
    for index, source in enumerate(volume.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        found = [kind for kind in _SOURCES if source.get(kind) is not None]
        for kind in found:
            _check_source(kind, source[kind], where, path, taken, errors)
        if len(found) > 1:
            errors.append(forbidden(where, "may not specify more than 1 volume type per source"))


def _check_source(kind: str, source: Obj, where: str, path: str, taken: set[str], errors: Errors) -> None:
    at = f"{where}.{kind}"
    if kind in ("secret", "configMap"):
        if not source.get("name"):
            errors.append(required(f"{at}.name"))
        check_key_items(source.get("items"), f"{at}.items", errors)
        for item in source.get("items") or ():
            _take(item.get("path"), source.get("name", ""), taken, path, errors)
    elif kind == "downwardAPI":
        check_downward_items(source.get("items"), at, errors)
        for item in source.get("items") or ():
            _take(item.get("path"), item.get("path"), taken, path, errors)
    elif kind == "serviceAccountToken":
        _check_token(source, at, path, errors)
    elif kind == "clusterTrustBundle":
        _check_trust_bundle(source, at, errors)
        _take(source.get("path"), source.get("path"), taken, path, errors)
    else:
        _check_certificate(source, at, errors)
        for field in _CERTIFICATE_PATHS:
            _take(source.get(field), source.get(field), taken, path, errors)


def _take(file: str | None, shown: str | None, taken: set[str], path: str, errors: Errors) -> None:
    """Two sources may not write the same file."""
    if not file:
        return
    if file in taken:
        errors.append(invalid(path, shown, "conflicting duplicate paths"))
    taken.add(file)


def _check_token(token: Obj, at: str, path: str, errors: Errors) -> None:
    expiry = token.get("expirationSeconds")
    if expiry is None:
        errors.append(required(f"{at}.expirationSeconds"))
    elif expiry < 600:
        detail = "may not specify a duration less than 10 minutes"
        errors.append(invalid(f"{at}.expirationSeconds", expiry, detail))
    elif expiry > 1 << 32:
        detail = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid(f"{at}.expirationSeconds", expiry, detail))
    if not token.get("path"):
        errors.append(required(f"{path}.path"))
    else:
        check_local(token["path"], f"{path}.path", errors)


def _check_trust_bundle(bundle: Obj, at: str, errors: Errors) -> None:
    name, signer = bundle.get("name"), bundle.get("signerName")
    if name is not None and signer is not None:
        errors.append(invalid(at, bundle, "only one of name and signerName may be used"))
    elif name is not None:
        if not name:
            errors.append(required(f"{at}.name", "must be a valid object name"))
        if bundle.get("labelSelector") is not None:
            detail = "labelSelector must be unset if name is specified"
            errors.append(invalid(f"{at}.labelSelector", bundle["labelSelector"], detail))
    elif signer is not None:
        if not signer:
            errors.append(required(f"{at}.signerName", "must be a valid signer name"))
        check_signer_name(signer, f"{at}.signerName", errors)
        check_label_selector(bundle.get("labelSelector"), f"{at}.labelSelector", errors)
    else:
        errors.append(required(at, "either name or signerName must be specified"))
    if not bundle.get("path"):
        errors.append(required(f"{at}.path"))
    check_local(bundle.get("path", ""), f"{at}.path", errors)


def check_signer_name(name: str, path: str, errors: Errors) -> None:
    """The name of a signer: ``example.com/name``."""
    if not name:
        errors.append(required(path))
        return
    domain, slash, rest = name.partition("/")
    if not slash or "/" in rest:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errors.append(invalid(path, name, detail))
        return
    if size_bytes(domain) > DNS1123_SUBDOMAIN_MAX:
        errors.append(too_long(path, DNS1123_SUBDOMAIN_MAX))
    _check_dotted(domain, is_dns1123_label, path, errors)
    if "." not in domain:
        errors.append(invalid(path, domain, "should be a domain with at least two segments separated by dots"))
    _check_dotted(rest, is_dns1123_subdomain, path, errors)


def _check_dotted(value: str, syntax: Syntax, path: str, errors: Errors) -> None:
    """Report the first invalid part only, since the message is the same for all."""
    for part in value.split("."):
        faults = tuple(syntax(part))
        if faults:
            errors += [invalid(path, value, f'validating label "{part}": {fault}') for fault in faults]
            return


def _check_certificate(certificate: Obj, at: str, errors: Errors) -> None:
    signer = certificate.get("signerName", "")
    check_signer_name(signer, f"{at}.signerName", errors)
    annotations = certificate.get("userAnnotations") or {}
    for key in annotations:
        check_syntax(key.lower(), is_prefixed_label_key, f"{at}.userAnnotations", errors)
    if sum(size_bytes(key) + size_bytes(value) for key, value in annotations.items()) > ANNOTATIONS_LIMIT_BYTES:
        errors.append(too_long(f"{at}.userAnnotations", ANNOTATIONS_LIMIT_BYTES))
    check_enum(certificate.get("keyType", ""), _KEY_TYPES, f"{at}.keyType", errors)
    expiry = certificate.get("maxExpirationSeconds")
    limit = _DAY_S if signer.startswith("kubernetes.io/") else 91 * _DAY_S
    if expiry is not None and expiry < 3600:
        detail = "if provided, maxExpirationSeconds must be >= 3600"
        errors.append(invalid(f"{at}.maxExpirationSeconds", expiry, detail))
    elif expiry is not None and expiry > limit:
        detail = f"if provided, maxExpirationSeconds must be <= {limit}"
        errors.append(invalid(f"{at}.maxExpirationSeconds", expiry, detail))
    paths = [field for field in _CERTIFICATE_PATHS if certificate.get(field)]
    for field in paths:
        check_local(certificate[field], f"{at}.{field}", errors)
    if not paths:
        detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errors.append(required(at, detail))
