"""Issues service account tokens for the ``token`` subresource."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import orjson

from shoal.apiserver.authn.keys import SigningKeys
from shoal.apiserver.context import Call, Core
from shoal.apiserver.objects import meta
from shoal.errors import BadRequest, Conflict, FieldError, Invalid, NotFound, invalid
from shoal.kube.kinds.access.reviews import TOKEN_REQUEST
from shoal.kube.objects import Obj
from shoal.store import Key

_GROUP, _KIND = "authentication.k8s.io", "TokenRequest"
_BOUND = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
# Clients that mount a token with this lifetime may not renew it: the token lasts a year, and a claim says
# when it should have been renewed.
WARN_ONLY_S = 3607
EXTENDED_S = 365 * 24 * 3600


class TokenIssuer:
    """Answers TokenRequests."""

    def __init__(self, core: Core, keys: SigningKeys) -> None:
        self.core = core
        self.keys = keys

    async def issue(self, call: Call, request: Obj, account: Obj) -> Obj:
        """The TokenRequest with its status filled in."""
        named, metadata = account["metadata"], meta(request)
        self._check_metadata(metadata, named)
        TOKEN_REQUEST.default(request)
        spec = request["spec"]
        spec["audiences"] = spec.get("audiences") or list(self.core.config.audiences)
        errors = TOKEN_REQUEST.validate_create(request)
        if spec.get("attestations"):
            text = "attestations may only be specified with a webhook bound object reference"
            errors = [invalid("spec.attestations", spec["attestations"], text)]
        if errors:
            raise Invalid.of(_KIND, _GROUP, "", errors)
        bound = await self._bound(spec.get("boundObjectRef"), named)
        now, life_s = self.core.clock.now(), spec["expirationSeconds"]
        expires = now + timedelta(seconds=life_s)
        second = int(now.timestamp())
        if "pod" in bound and life_s == WARN_ONLY_S and set(spec["audiences"]) <= set(self.core.config.audiences):
            bound["warnafter"] = second + life_s
            life_s = EXTENDED_S
        request["apiVersion"], request["kind"] = f"{_GROUP}/v1", _KIND
        request["metadata"] = {
            **metadata,
            "name": named["name"],
            "namespace": named["namespace"],
            "uid": named["uid"],
            "creationTimestamp": self.core.now(),
        }
        request["status"] = {
            "token": self.keys.sign(self._claims(named, spec["audiences"], bound, second, second + life_s)),
            "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return request

    @staticmethod
    def _check_metadata(metadata: Obj, account: Obj) -> None:
        """Name, namespace and uid are optional; if given, they must be the account's."""
        errors: list[FieldError] = []
        for field in ("name", "namespace"):
            given = metadata.get(field)
            if given and given != account[field]:
                text = f"must match the service account {field} if specified"
                errors.append(invalid(f"metadata.{field}", given, text))
        if errors:
            raise Invalid.of(_KIND, _GROUP, account["name"], errors)
        uid = metadata.get("uid")
        if uid and uid != account["uid"]:
            text = f"the UID in the token request ({uid}) does not match the UID of the service account"
            raise Conflict.of(_KIND, _GROUP, account["name"], f"{text} ({account['uid']})")

    def _claims(self, account: Obj, audiences: list[str], bound: Obj, now: int, expires: int) -> Obj:
        namespace, name = account["namespace"], account["name"]
        about = {"namespace": namespace, **bound, "serviceaccount": {"name": name, "uid": account["uid"]}}
        return {
            "aud": audiences,
            "exp": expires,
            "iat": now,
            "iss": self.core.config.issuer,
            "jti": self.core.ids.new_uid(),
            "kubernetes.io": about,
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }

    async def _bound(self, reference: Obj | None, account: Obj) -> Obj:
        """The object that the token is bound to; it must exist and have the given uid."""
        if not reference:
            return {}
        kind, name = reference.get("kind") or "", reference.get("name") or ""
        group, _, version = (reference.get("apiVersion") or "").rpartition("/")
        plural = _BOUND.get(kind) if not group else None
        if plural is None:
            raise BadRequest(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        key = Key(plural, "" if plural == "nodes" else account["namespace"], name)
        if self.core.store.get(key) is None:
            await self.core.store.fresh()  # another server may have made it just now
        obj = self._object(key)
        claims: Obj = {kind.lower(): {"name": name, "uid": obj["metadata"]["uid"]}}
        if plural == "pods":
            claims |= self._of_pod(obj, account)
        uid = reference.get("uid")
        if uid and uid != obj["metadata"]["uid"]:
            raise Conflict.of(
                kind, "", name,
                f"the UID in the bound object reference ({uid}) does not match the UID in record. "
                "The object might have been deleted and then recreated",
            )  # fmt: skip
        return claims

    def _of_pod(self, pod: Obj, account: Obj) -> Obj:
        """The claims of a pod's token: the pod must use this account; the claims include its node."""
        spec = pod["spec"]
        if spec.get("serviceAccountName") != account["name"]:
            raise BadRequest(
                f'cannot bind token for serviceaccount "{account["name"]}" to pod running with different '
                "serviceaccount name."
            )
        node = spec.get("nodeName")
        if not node:
            return {}
        entry = self.core.store.get(Key("nodes", "", node))
        named = {"name": node}
        if entry is not None:
            named["uid"] = orjson.loads(entry.value)["metadata"]["uid"]
        return {"node": named}

    def _object(self, key: Key) -> Any:
        entry = self.core.store.get(key)
        if entry is None:
            raise NotFound.of(key.resource, "", key.name)
        return orjson.loads(entry.value)
