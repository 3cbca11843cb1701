"""The keys of service account tokens: the newest signs, all of them verify. Also the OpenID documents about them.

Tokens are JWTs with ES256. A key is named by the SHA-256 of its public half (``kid``), so that servers which share keys
agree on names. The cryptography library is loaded when the first token comes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from shoal.apiserver.authn.credential import Claims, Rejected

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

ALGORITHM = "ES256"
_HALF = 32  # bytes of each of the two numbers of a signature


class SigningKeys:
    """One private key and any number of public ones, as PEM."""

    def __init__(self, private_pem: bytes, public_pems: Sequence[bytes] = ()) -> None:
        self._pems = private_pem, tuple(public_pems)
        self._private: EllipticCurvePrivateKey | None = None
        self._public: dict[str, EllipticCurvePublicKey] = {}
        self._header = b""  # empty until the keys are loaded

    def replace(self, private_pem: bytes, public_pems: Sequence[bytes]) -> None:
        """Sign with this key, and verify with it and these others only."""
        self._pems, self._header = (private_pem, tuple(public_pems)), b""

    def sign(self, claims: Claims) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        text = self._load_header() + b"." + _b64(orjson.dumps(claims))
        assert self._private is not None
        r, s = decode_dss_signature(self._private.sign(text, ec.ECDSA(hashes.SHA256())))
        return (text + b"." + _b64(r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big"))).decode()

    def verify(self, token: str) -> Claims:
        """The claims of a token that one of the keys signed; Rejected otherwise."""
        text, _, signature = token.rpartition(".")
        header, _, body = text.partition(".")
        try:
            head, claims, raw = orjson.loads(_unb64(header)), orjson.loads(_unb64(body)), _unb64(signature)
            signed = text.encode("ascii")
        except ValueError:
            raise Rejected("the token cannot be parsed") from None
        if not isinstance(head, dict) or not isinstance(claims, dict) or head.get("alg") != ALGORITHM:
            raise Rejected("the token was not issued by this cluster")
        for key in self._candidates(head.get("kid")):
            if _is_signed(key, signed, raw):
                return claims
        raise Rejected("invalid signature")

    def jwks(self) -> list[dict[str, str]]:
        """The public keys as a JSON Web Key Set lists them, the signing one first."""
        self._load_header()
        return [_jwk(name, key) for name, key in self._public.items()]

    def _candidates(self, name: Any) -> list[EllipticCurvePublicKey]:
        self._load_header()
        if name is None:
            return list(self._public.values())
        found = self._public.get(name) if isinstance(name, str) else None
        return [found] if found is not None else []

    def _load_header(self) -> bytes:
        if not self._header:
            from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

            private_pem, public_pems = self._pems
            private: Any = load_pem_private_key(private_pem, None)
            public: list[Any] = [private.public_key(), *(load_pem_public_key(pem) for pem in public_pems)]
            self._private = private
            self._public = {_key_id(key): key for key in public}
            self._header = _b64(orjson.dumps({"alg": ALGORITHM, "kid": _key_id(public[0])}))
        return self._header


class IssuerDocuments:
    """OpenID discovery and the key set, with which relying parties verify tokens offline."""

    CONFIGURATION = "/.well-known/openid-configuration"
    KEY_SET = "/openid/v1/jwks"

    def __init__(self, keys: SigningKeys, *, issuer: str, address: str) -> None:
        self._keys = keys
        self._configuration = orjson.dumps(
            {
                "issuer": issuer,
                "jwks_uri": f"https://{address}{self.KEY_SET}",
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [ALGORITHM],
            }
        )

    def get(self, path: str) -> tuple[bytes, bytes] | None:
        """Body and content type of the document at ``path``, if there is one."""
        if path == self.CONFIGURATION:
            return self._configuration, b"application/json"
        if path == self.KEY_SET:
            return orjson.dumps({"keys": self._keys.jwks()}), b"application/jwk-set+json"
        return None


def _is_signed(key: EllipticCurvePublicKey, text: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    if len(signature) != 2 * _HALF:
        return False
    der = encode_dss_signature(int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big"))
    try:
        key.verify(der, text, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _key_id(key: EllipticCurvePublicKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return _b64(hashlib.sha256(der).digest()).decode()


def _jwk(name: str, key: EllipticCurvePublicKey) -> dict[str, str]:
    numbers = key.public_numbers()
    x, y = (_b64(number.to_bytes(_HALF, "big")).decode() for number in (numbers.x, numbers.y))
    return {"use": "sig", "kty": "EC", "kid": name, "crv": "P-256", "alg": ALGORITHM, "x": x, "y": y}


def _b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _unb64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
