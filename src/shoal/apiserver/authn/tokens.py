"""Service account tokens: JWTs signed by the cluster's own key, made by the ``token`` subresource and read again when
they come back as credentials."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import Any

import orjson

from shoal.apiserver.authn.authenticator import AUTHENTICATED
from shoal.apiserver.context import Call, Core, User
from shoal.apiserver.objects import Obj
from shoal.errors import Conflict, Invalid, NotFound, invalid
from shoal.store import Key

_BOUND_KINDS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_MIN_S, _DEFAULT_S, _MAX_S = 600, 3600, 1 << 32
_HEADER = orjson.dumps({"alg": "ES256", "typ": "JWT"})
_SIGNATURE_BYTES = 64
_CACHE_LIMIT = 10_000


class TokenIssuer:
    """Signs tokens with an ES256 key; the key is loaded when the first token is asked for."""

    def __init__(self, core: Core, key_pem: bytes) -> None:
        self.core = core
        self._key_pem = key_pem
        self._key: Any = None

    async def issue(self, call: Call, request: Obj, account: Obj) -> Obj:
        """The TokenRequest with its status filled in."""
        spec = request.setdefault("spec", {})
        lifetime = spec.get("expirationSeconds") or _DEFAULT_S
        spec["expirationSeconds"] = lifetime
        spec["audiences"] = spec.get("audiences") or [self.core.config.issuer]
        errors = []
        if lifetime < _MIN_S:
            errors.append(
                invalid("spec.expirationSeconds", lifetime, "may not specify a duration less than 10 minutes")
            )
        if lifetime > _MAX_S:
            errors.append(
                invalid("spec.expirationSeconds", lifetime, "may not specify a duration larger than 2^32 seconds")
            )
        if errors:
            raise Invalid.of("TokenRequest", "authentication.k8s.io", account["metadata"]["name"], errors)
        bound = self._bound(spec.get("boundObjectRef"), account)
        now = self.core.clock.now()
        expires = now + timedelta(seconds=lifetime)
        claims = self._claims(account, spec, bound, int(now.timestamp()), int(expires.timestamp()))
        metadata = account["metadata"]
        request["apiVersion"], request["kind"] = "authentication.k8s.io/v1", "TokenRequest"
        request["metadata"] = {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "creationTimestamp": self.core.now(),
        }
        request["status"] = {
            "token": self._sign(claims),
            "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return request

    def _claims(self, account: Obj, spec: Obj, bound: Obj, now: int, expires: int) -> Obj:
        metadata = account["metadata"]
        named = {"name": metadata["name"], "uid": metadata["uid"]}
        return {
            "aud": spec["audiences"],
            "exp": expires,
            "iat": now,
            "iss": self.core.config.issuer,
            "jti": self.core.ids.new_uid(),
            "kubernetes.io": {"namespace": metadata["namespace"], "serviceaccount": named, **bound},
            "nbf": now,
            "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
        }

    def _bound(self, reference: Obj | None, account: Obj) -> Obj:
        """The object whose life limits the token's; it must exist, and be the one that was meant."""
        if not reference:
            return {}
        kind, name = reference.get("kind") or "", reference.get("name") or ""
        plural = _BOUND_KINDS.get(kind)
        if plural is None:
            raise Invalid.of(
                "TokenRequest", "authentication.k8s.io", account["metadata"]["name"],
                [invalid("spec.boundObjectRef", kind, f"cannot bind token to object of type {kind}")],
            )  # fmt: skip
        namespace = "" if plural == "nodes" else account["metadata"]["namespace"]
        entry = self.core.store.get(Key(plural, namespace, name))
        if entry is None:
            raise NotFound.of(plural, "", name)
        uid = orjson.loads(entry.value)["metadata"]["uid"]
        if reference.get("uid") and reference["uid"] != uid:
            raise Conflict.of(
                plural, "", name,
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )  # fmt: skip
        return {kind.lower(): {"name": name, "uid": uid}}

    def _sign(self, claims: Obj) -> str:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if self._key is None:
            self._key = load_pem_private_key(self._key_pem, None)
        text = _b64(_HEADER) + b"." + _b64(orjson.dumps(claims))
        r, s = decode_dss_signature(self._key.sign(text, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
        return (text + b"." + _b64(signature)).decode()


class TokenReader:
    """Recognises the tokens that the issuer has signed. Signatures are checked once; that a token is still in its time
    and that its account, and what it is bound to, are still there is checked each time."""

    def __init__(self, core: Core, key_pem: bytes) -> None:
        self.core = core
        self._key_pem = key_pem
        self._key: Any = None
        self._signed: dict[str, Obj] = {}  # claims by token

    def user_of(self, token: str) -> User | None:
        """The service account of a good token that is meant for this server."""
        claims = self._signed.get(token)
        if claims is None:
            claims = self._read(token)
            if claims is None:
                return None
            if len(self._signed) >= _CACHE_LIMIT:
                self._signed.clear()
            self._signed[token] = claims
        now, issuer = self.core.clock.wall_s(), self.core.config.issuer
        if claims["iss"] != issuer or issuer not in claims["aud"] or not claims["nbf"] <= now < claims["exp"]:
            return None
        return self._account(claims)

    def _account(self, claims: Obj) -> User | None:
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        if not self._lives("serviceaccounts", namespace, account):
            return None
        extra = [("authentication.kubernetes.io/credential-id", (f"JTI={claims['jti']}",))]
        for kind, plural in _BOUND_KINDS.items():
            bound = about.get(kind.lower())
            if bound is None:
                continue
            if not self._lives(plural, "" if plural == "nodes" else namespace, bound):
                return None
            if plural != "secrets":
                extra.append((f"authentication.kubernetes.io/{kind.lower()}-name", (bound["name"],)))
                extra.append((f"authentication.kubernetes.io/{kind.lower()}-uid", (bound["uid"],)))
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
        return User(claims["sub"], groups, account["uid"], tuple(extra))

    def _lives(self, plural: str, namespace: str, named: Obj) -> bool:
        entry = self.core.store.get(Key(plural, namespace, named["name"]))
        return entry is not None and orjson.loads(entry.value)["metadata"]["uid"] == named["uid"]

    def _read(self, token: str) -> Obj | None:
        """The claims of a token with our signature."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        text, _, signed = token.rpartition(".")
        header, _, body = text.partition(".")
        if self._key is None:
            self._key = load_pem_private_key(self._key_pem, None).public_key()
        try:
            signature = _unb64(signed)
            if len(signature) != _SIGNATURE_BYTES or _unb64(header) != _HEADER:
                return None
            half = _SIGNATURE_BYTES // 2
            der = encode_dss_signature(int.from_bytes(signature[:half], "big"), int.from_bytes(signature[half:], "big"))
            self._key.verify(der, text.encode(), ec.ECDSA(hashes.SHA256()))
            claims: Obj = orjson.loads(_unb64(body))
        except (ValueError, InvalidSignature):
            return None
        return claims


def _b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _unb64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
