"""Converts custom objects and Secrets of the cluster to the data of ``shoal.sentinel.model``.

Nothing is rejected here: an object that cannot be read is kept with its fault, and with as much of its host, path and
environment as can be read, so that its requests are refused instead of being served without it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from shoal.crds.sentinel import RouteRollout, read_policy, read_rollout, read_route
from shoal.sentinel.model import ApiKeyInfo, GatewayPolicy, GatewayRoute, KeySet, PeerGateway, TlsSecret

ENVIRONMENT = "shoal.dev/environment"
ALIAS = "app.kubernetes.io/name"
_UNREADABLE = (msgspec.ValidationError, TypeError, ValueError)


def route_of(obj: Mapping[str, Any]) -> GatewayRoute:
    about, spec = _about(obj), _mapping(obj.get("spec"))
    host, path = spec.get("host"), spec.get("path", "/")
    made = {
        **about,
        "host": host.lower() if isinstance(host, str) else "",
        "path": path if isinstance(path, str) and path.startswith("/") else "/",
        "created_at": str(obj["metadata"].get("creationTimestamp") or ""),
    }
    rollout, fault = _rollout_of(obj)
    try:
        return GatewayRoute(**made, spec=read_route(spec), rollout=rollout, rollout_fault=fault)
    except _UNREADABLE as error:
        return GatewayRoute(**made, fault=str(error) or "it cannot be read")


def _rollout_of(obj: Mapping[str, Any]) -> tuple[RouteRollout, str]:
    """What is done for candidates, or why it cannot be read: that concerns testers and must not stop users."""
    try:
        return read_rollout(obj.get("rollout") or {}), ""
    except _UNREADABLE as error:
        return RouteRollout(), f"rollout: {error}"


def policy_of(obj: Mapping[str, Any]) -> GatewayPolicy:
    about, spec = _about(obj), _mapping(obj.get("spec"))
    routes = spec.get("routes")
    named = tuple(str(name) for name in routes) if isinstance(routes, list) else ()
    try:
        return GatewayPolicy(**about, routes=named, spec=read_policy(spec))
    except _UNREADABLE as error:
        return GatewayPolicy(**about, routes=named, fault=str(error) or "it cannot be read")


def _about(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj["metadata"]
    labels = _mapping(metadata.get("labels"))
    environment = _mapping(obj.get("spec")).get("environment") or labels.get(ENVIRONMENT) or ""
    return {
        "name": metadata["name"],
        "alias": str(labels.get(ALIAS) or ""),
        "environment": str(environment),
        "generation": metadata.get("generation") or 0,
    }


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def tls_secret_of(obj: Mapping[str, Any]) -> TlsSecret | None:
    """None if it lacks the certificate or its key."""
    certificate, key, authority = (_entry(obj, name) for name in ("tls.crt", "tls.key", "ca.crt"))
    if not certificate or not key:
        return None
    fault = _certificate_fault(certificate, key, authority)
    return TlsSecret(
        name=obj["metadata"]["name"],
        certificate=certificate,
        key=key,
        authority=authority,
        fault=fault,
        usable=not fault,
    )


def _certificate_fault(certificate: bytes, key: bytes, authority: bytes) -> str:
    """A listener waits for its certificates, so Envoy must not get one that it would refuse."""
    # loaded by gateways that have certificates
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    try:
        chain = x509.load_pem_x509_certificates(certificate)
        if authority:
            x509.load_pem_x509_certificates(authority)
    except ValueError as error:
        return f"its certificate cannot be read: {error}"
    try:
        private = serialization.load_pem_private_key(key, password=None)
        of_certificate, of_key = chain[0].public_key(), private.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        return f"its key cannot be read: {error}"
    form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    same = of_certificate.public_bytes(*form) == of_key.public_bytes(*form)
    return "" if same else "its key is not that of its certificate"


def key_set_of(obj: Mapping[str, Any]) -> KeySet:
    """The keys in the Secret of an environment; invalid entries are left out."""
    labels = _mapping(obj["metadata"].get("labels"))
    found = (_key(id_, _entry(obj, id_)) for id_ in sorted(_mapping(obj.get("data"))))
    return KeySet(environment=str(labels.get(ENVIRONMENT) or ""), keys=tuple(key for key in found if key is not None))


def _key(id_: str, entry: bytes) -> ApiKeyInfo | None:
    try:
        found = orjson.loads(entry)
        return ApiKeyInfo(
            id=id_,
            digest=str(found["digest"]).lower(),
            subject=str(found.get("subject") or id_),
            permissions=frozenset(map(str, found.get("permissions") or ())),
            expires=float(found.get("expires") or 0),
            enabled=found.get("enabled", True) is True,
            meta=_mapping(found.get("meta")),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _entry(obj: Mapping[str, Any], name: str) -> bytes:
    try:
        return base64.b64decode(_mapping(obj.get("data")).get(name) or "", validate=True)
    except (binascii.Error, TypeError, ValueError):
        return b""


def peers_of(text: str) -> tuple[PeerGateway, ...]:
    """The peers in their ConfigMap; none if it is invalid: peers are only a fallback."""
    try:
        found: Iterable[Any] = orjson.loads(text)
        return tuple(
            PeerGateway(
                region=str(each.get("region") or ""),
                addresses=tuple(map(str, each.get("addresses") or ())),
                distance=int(each.get("distance") or 0),
                healthy=each.get("healthy", True) is True,
            )
            for each in found
            if isinstance(each, dict)
        )
    except (ValueError, TypeError, OverflowError):
        return ()
