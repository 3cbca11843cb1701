from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from shoal.sentinel.model import PeerGateway
from shoal.sentinel.translate.reading import key_set_of, peers_of, policy_of, route_of, tls_secret_of


def _secret(**data: Any) -> dict[str, Any]:
    encoded = {name: base64.b64encode(value).decode() for name, value in data.items()}
    return {"metadata": {"name": "s", "labels": {"shoal.dev/environment": "env_1"}}, "data": encoded}


def test_what_cannot_be_read_keeps_where_it_belongs_and_its_fault() -> None:
    about = {"name": "r", "labels": {"shoal.dev/environment": "env_1", "app.kubernetes.io/name": "nick"}}
    made = route_of({"metadata": about, "spec": {"host": "A.example", "path": "/x", "backends": 5}})
    assert (made.environment, made.alias, made.host, made.path, made.spec) == ("env_1", "nick", "a.example", "/x", None)
    assert made.fault
    broken = policy_of({"metadata": about, "spec": {"environment": "env_2", "teleport": {}, "routes": ["r"]}})
    assert (broken.environment, broken.routes, broken.spec) == ("env_2", ("r",), None)
    assert "teleport" in broken.fault
    assert route_of({"metadata": {"name": "x"}}).fault


def test_keys_are_read_one_by_one_and_invalid_entries_are_left_out() -> None:
    good = orjson.dumps({"digest": "AB", "permissions": ["p"], "subject": "me", "expires": 5, "meta": {"a": 1}})
    found = key_set_of(_secret(k1=good, k2=b"{", k3=orjson.dumps([1]), k4=orjson.dumps({"digest": "cd", "enabled": 0})))
    assert found.environment == "env_1"
    assert [(key.id, key.digest, key.enabled) for key in found.keys] == [("k1", "ab", True), ("k4", "cd", False)]
    assert found.keys[0].permissions == {"p"}


def test_a_certificate_needs_its_key() -> None:
    assert tls_secret_of(_secret(**{"tls.crt": b"c"})) is None
    made = tls_secret_of(_secret(**{"tls.crt": b"c", "tls.key": b"k", "ca.crt": b"a"}))
    assert made is not None and (made.certificate, made.key, made.authority) == (b"c", b"k", b"a")
    assert "certificate cannot be read" in made.fault


def _signed() -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop.example")])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return builder.sign(key, SHA256()).public_bytes(serialization.Encoding.PEM), private


def test_what_envoy_would_refuse_of_a_certificate_is_known_before() -> None:
    (crt, key), (_, other) = _signed(), _signed()

    def fault(**given: bytes) -> str:
        made = tls_secret_of(_secret(**{"tls.crt": crt, "tls.key": key, **given}))
        assert made is not None
        return made.fault

    assert fault() == "" == fault(**{"ca.crt": crt})
    assert fault(**{"tls.key": other}) == "its key is not that of its certificate"
    assert "key cannot be read" in fault(**{"tls.key": b"k"})
    assert "certificate cannot be read" in fault(**{"ca.crt": b"a"})


def test_peers_that_cannot_be_read_are_left_out() -> None:
    for text in ("nonsense", "1", '[{"addresses": 5}]', '[{"distance": "far"}]'):
        assert peers_of(text) == (), text
    text = '[{"region":"x","addresses":["1.2.3.4:5"],"distance":3,"healthy":false},7]'
    assert peers_of(text) == (PeerGateway(region="x", addresses=("1.2.3.4:5",), distance=3, healthy=False),)
