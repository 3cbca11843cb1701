"""Signed tokens: their key sources, and Envoy's filter that verifies them. Gates decide whether one is needed."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import orjson
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2, http_uri_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2
from google.protobuf import empty_pb2, wrappers_pb2

from shoal.crds.sentinel import Jwt
from shoal.sentinel.model import GatewayPolicy
from shoal.sentinel.translate import envoy
from shoal.sentinel.translate.clusters import web_cluster
from shoal.sentinel.translate.gates import header_key, payload_key

_FETCH_S = 5.0
_CURVES = {"secp256r1": ("P-256", 32), "secp384r1": ("P-384", 48), "secp521r1": ("P-521", 66)}


def requirement_name(policies: Sequence[GatewayPolicy]) -> str:
    return "+".join(policy.name for policy in policies)


def authentication(
    routes: Iterable[Sequence[GatewayPolicy]], discovered: Mapping[str, str]
) -> config_pb2.JwtAuthentication:
    """The JWT filter: one requirement for each route with token policies. ``discovered``: key URLs by issuer."""
    made = config_pb2.JwtAuthentication(bypass_cors_preflight=True)
    for policies in routes:
        for policy in policies:
            assert policy.spec is not None and policy.spec.jwt is not None
            if policy.name not in made.providers:
                made.providers[policy.name].CopyFrom(_provider(policy.name, policy.spec.jwt, discovered))
        made.requirement_map[requirement_name(policies)].CopyFrom(_read_all(policies))
    return made


def _read_all(policies: Sequence[GatewayPolicy]) -> config_pb2.JwtRequirement:
    """Verify each token that is present; the gate after it refuses requests without a valid one."""
    either = [
        config_pb2.JwtRequirement(
            requires_any=config_pb2.JwtRequirementOrList(
                requirements=[
                    config_pb2.JwtRequirement(provider_name=policy.name),
                    config_pb2.JwtRequirement(allow_missing_or_failed=empty_pb2.Empty()),
                ]
            )
        )
        for policy in policies
    ]
    if len(either) == 1:
        return either[0]
    return config_pb2.JwtRequirement(requires_all=config_pb2.JwtRequirementAndList(requirements=either))


def _provider(name: str, jwt: Jwt, discovered: Mapping[str, str]) -> config_pb2.JwtProvider:
    made = config_pb2.JwtProvider(
        issuer=jwt.issuer or jwt.oidc_issuer,
        audiences=jwt.audiences,
        require_expiration=True,
        forward=True,
        from_headers=[config_pb2.JwtHeader(name="authorization", value_prefix="Bearer ")],
        payload_in_metadata=payload_key(name),
        header_in_metadata=header_key(name),
        clock_skew_seconds=jwt.clock_skew,
    )
    if jwt.pem:
        made.local_jwks.CopyFrom(base_pb2.DataSource(inline_string=jwks_of_pem(jwt.pem)))
    else:
        uri = keys_uri(jwt, discovered)
        made.remote_jwks.http_uri.CopyFrom(
            http_uri_pb2.HttpUri(uri=uri, cluster=cluster_name(uri), timeout=envoy.duration(_FETCH_S))
        )
        made.remote_jwks.cache_duration.CopyFrom(envoy.duration(jwt.cache))
        made.remote_jwks.async_fetch.fast_listener = True
        made.remote_jwks.retry_policy.num_retries.CopyFrom(wrappers_pb2.UInt32Value(value=2))
    return made


def keys_uri(jwt: Jwt, discovered: Mapping[str, str]) -> str:
    return jwt.jwks_uri or discovered.get(jwt.oidc_issuer, "")


def cluster_name(uri: str) -> str:
    where = urlsplit(uri)
    return f"web/{where.scheme}/{where.hostname}:{_port(uri)}"


def _port(uri: str) -> int:
    where = urlsplit(uri)
    return where.port or (443 if where.scheme == "https" else 80)


def cluster_of(uri: str) -> cluster_pb2.Cluster:
    where = urlsplit(uri)
    return web_cluster(cluster_name(uri), str(where.hostname), _port(uri), tls=where.scheme == "https")


def token_fault(jwt: Jwt, discovered: Mapping[str, str]) -> str:
    """Why its keys are not available; empty if they are."""
    if jwt.pem:
        from cryptography.exceptions import UnsupportedAlgorithm

        try:
            jwks_of_pem(jwt.pem)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            return f"its key cannot be read: {error}"
        return ""
    uri = keys_uri(jwt, discovered)
    if not uri:
        return f"the key URL of issuer {jwt.oidc_issuer} is not known yet"
    try:
        good = urlsplit(uri).scheme in ("http", "https") and urlsplit(uri).hostname and _port(uri)
    except ValueError:
        good = False
    return "" if good else f"invalid URL {uri!r}: expected http or https, and a host"


def jwks_of_pem(text: str) -> str:
    """A key set of one key; raise ValueError for an unsupported kind of key."""
    # most gateways have no keys to read: the library is loaded by those that have
    from cryptography.hazmat.primitives.serialization import load_pem_public_key
    from cryptography.x509 import load_pem_x509_certificate

    data = text.encode()
    if b"BEGIN CERTIFICATE" in data:
        key: Any = load_pem_x509_certificate(data).public_key()
    else:
        key = load_pem_public_key(data)
    return orjson.dumps({"keys": [_jwk(key)]}).decode()


def _jwk(key: Any) -> dict[str, str]:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return {"kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        curve, size = _CURVES[key.curve.name]
        point = key.public_numbers()
        return {"kty": "EC", "crv": curve, "x": _number(point.x, size), "y": _number(point.y, size)}
    if isinstance(key, ed25519.Ed25519PublicKey):
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        return {"kty": "OKP", "crv": "Ed25519", "x": _text(raw)}
    raise ValueError("unsupported key: use RSA, P-256, P-384, P-521 or Ed25519")


def _number(value: int, size: int = 0) -> str:
    return _text(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
