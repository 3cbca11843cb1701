"""Verifies service account tokens: account, audience, and the objects that the token is bound to.

A token is invalid after its expiry, and when its account or the pod, secret or node it is bound to is deleted. An
object that is being deleted still counts for a minute, so that a pod can use its token while it shuts down.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime
from hmac import compare_digest
from typing import Any

import orjson

from shoal.apiserver.authn.credential import AUTHENTICATED, CREDENTIAL_ID, Claims, Credential, Rejected, Unseen
from shoal.apiserver.authn.keys import SigningKeys
from shoal.apiserver.context import Core
from shoal.apiserver.user import User
from shoal.kube.objects import Obj
from shoal.store import Entry, Key

LEGACY_ISSUER = "kubernetes/serviceaccount"
LEGACY_CLAIMS = "kubernetes.io/serviceaccount/"
LEGACY_INVALID = "kubernetes.io/legacy-token-invalid-since"
LEEWAY_S = 60  # tolerance for clock differences and for objects that are being deleted
_DAY_S = 24 * 3600
_NOTES = "authentication.kubernetes.io/"
_INVALIDATED = "service account token has been invalidated"


class AccountReader:
    """Recognises the tokens that this cluster's keys have signed."""

    def __init__(self, core: Core, keys: SigningKeys, on_legacy_use: Callable[[Key], None]) -> None:
        self.core = core
        self.keys = keys
        self._on_legacy_use = on_legacy_use  # called with the secrets whose tokens are used

    def claims_of(self, token: str) -> Claims:
        """The claims of a token; Rejected when none of this server's keys signed it."""
        return self.keys.verify(token)

    def accept(self, claims: Claims, token: str, audiences: Sequence[str]) -> Credential:
        """The credential for verified claims, if they are currently valid for one of ``audiences``."""
        try:
            if claims["iss"] == LEGACY_ISSUER:
                return self._accept_legacy(claims, token, audiences)
            if claims["iss"] != self.core.config.issuer:
                raise Rejected("the token was not issued by this cluster")
            return self._accept_bound(claims, audiences)
        except (LookupError, TypeError, ValueError):
            raise Rejected("service account token claims could not be validated") from None

    # -- tokens of the token subresource -----------------------------------------------------------------------------

    def _accept_bound(self, claims: Claims, audiences: Sequence[str]) -> Credential:
        shared = _shared(claims["aud"], audiences)
        now = self.core.clock.wall_s()
        if now >= claims["exp"] + LEEWAY_S:
            raise Rejected("service account token has expired")
        if now + LEEWAY_S < claims["nbf"]:
            raise Rejected("service account token is not valid yet")
        about = claims["kubernetes.io"]
        namespace, account = about["namespace"], about["serviceaccount"]
        holds = _Holding(self.core, claims["exp"] + LEEWAY_S)
        holds.on("serviceaccounts", namespace, account, f"service account {namespace}/{account['name']} not found")
        extra = [(CREDENTIAL_ID, (f"JTI={claims['jti']}",))]
        pod, node, secret = about.get("pod"), about.get("node"), about.get("secret")
        if secret is not None:
            holds.on("secrets", namespace, secret)
        if pod is not None:
            holds.on("pods", namespace, pod)
            extra += [(f"{_NOTES}pod-name", (pod["name"],)), (f"{_NOTES}pod-uid", (pod["uid"],))]
        if node is not None:
            if pod is None:  # the node claim of a pod's token is informational
                holds.on("nodes", "", node)
            extra.append((f"{_NOTES}node-name", (node["name"],)))
            if node.get("uid"):
                extra.append((f"{_NOTES}node-uid", (node["uid"],)))
        user = account_user(namespace, account["name"], account["uid"], tuple(extra))
        return holds.credential(user, claims, shared)

    # -- tokens of secrets -------------------------------------------------------------------------------------------

    def _accept_legacy(self, claims: Claims, token: str, audiences: Sequence[str]) -> Credential:
        shared = _shared(self.core.config.audiences, audiences)
        namespace = claims[f"{LEGACY_CLAIMS}namespace"]
        account = {
            "name": claims[f"{LEGACY_CLAIMS}service-account.name"],
            "uid": claims[f"{LEGACY_CLAIMS}service-account.uid"],
        }
        user = account_user(namespace, account["name"], account["uid"])
        if claims["sub"] != user.name:
            raise Rejected("sub claim is invalid")
        name = claims[f"{LEGACY_CLAIMS}secret.name"]
        holds = _Holding(self.core, (self.core.clock.wall_s() // _DAY_S + 1) * _DAY_S)  # its use is noted by the day
        secret = holds.on("secrets", namespace, {"name": name}, leeway_s=0)
        if not compare_digest(base64.b64decode((secret.get("data") or {}).get("token") or ""), token.encode()):
            raise Unseen("token does not match server's copy")
        if (secret["metadata"].get("labels") or {}).get(LEGACY_INVALID):
            raise Rejected(f"the token in secret {namespace}/{name} has been marked invalid")
        holds.on("serviceaccounts", namespace, account, leeway_s=0)
        self._on_legacy_use(Key("secrets", namespace, name))
        return holds.credential(user, claims, shared)


class _Holding:
    """Collects the objects that a token depends on, and its expiry."""

    def __init__(self, core: Core, not_after: float) -> None:
        self._core = core
        self._not_after = not_after
        self._rests_on: list[tuple[Key, Entry]] = []

    def on(self, plural: str, namespace: str, named: Obj, missing: str = _INVALIDATED, leeway_s: int = LEEWAY_S) -> Any:
        """Add an object that the token depends on; its uid must match."""
        key = Key(plural, namespace, named["name"])
        entry = self._core.store.get(key)
        if entry is None:
            raise Unseen(missing)
        obj = orjson.loads(entry.value)
        metadata = obj["metadata"]
        if "uid" in named and metadata["uid"] != named["uid"]:
            raise Unseen(missing)
        deleted = metadata.get("deletionTimestamp")
        if deleted:
            ends = datetime.fromisoformat(deleted).timestamp() + leeway_s
            if self._core.clock.wall_s() >= ends:
                raise Rejected(missing)
            self._not_after = min(self._not_after, ends)
        self._rests_on.append((key, entry))
        return obj

    def credential(self, user: User, claims: Claims, audiences: Sequence[str]) -> Credential:
        return Credential(user, self._not_after, rests_on=self._rests_on, claims=claims, audiences=audiences)


def account_user(namespace: str, name: str, uid: str, extra: tuple[tuple[str, tuple[str, ...]], ...] = ()) -> User:
    """A service account as a user."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra)


def _shared(given: Any, asked: Sequence[str]) -> tuple[str, ...]:
    of_token = [given] if isinstance(given, str) else list(given)
    shared = tuple(audience for audience in of_token if audience in asked)
    if not shared:
        raise Rejected(f"token audiences {_quoted(of_token)} is invalid for the target audiences {_quoted(asked)}")
    return shared


def _quoted(words: Sequence[str]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"
