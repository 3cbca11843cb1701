"""Service account tokens of pods: requested with TokenRequest, cached, and renewed before they expire."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.clock import Clock
from shoal.client import Client, builtin
from shoal.kube.objects import Obj
from shoal.kube.times import parse_epoch
from shoal.node.volumes.content import TokenProjection

_RENEWED_AT = 0.8  # fraction of a token's lifetime
_LONGEST_S = 24 * 3600.0  # a token is renewed after this long at the latest


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    renew_at: float  # wall seconds


class PodTokens:
    """Caches the tokens of pods by projection until their renewal is due."""

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._accounts = client.of(builtin("serviceaccounts"))
        self._clock = clock
        self._kept: dict[tuple[str, TokenProjection], _Token] = {}

    async def get(self, pod: Obj, projection: TokenProjection) -> str:
        uid = pod["metadata"]["uid"]
        kept = self._kept.get((uid, projection))
        now = self._clock.wall_s()
        if kept is not None and now < kept.renew_at:
            return kept.text
        answer = await self._request(pod, projection)
        status = answer["status"]
        life_s = max(1.0, parse_epoch(status["expirationTimestamp"]) - now)
        token = _Token(status["token"], now + min(life_s * _RENEWED_AT, _LONGEST_S))
        self._kept[uid, projection] = token
        return token.text

    async def _request(self, pod: Obj, projection: TokenProjection) -> Obj:
        about = pod["metadata"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": about["name"], "uid": about["uid"]}
        spec: Obj = {"expirationSeconds": projection.expires_s, "boundObjectRef": bound}
        spec["audiences"] = [projection.audience] if projection.audience else []
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = pod["spec"].get("serviceAccountName") or "default"
        return await self._accounts.create_subresource(account, "token", request, about["namespace"])

    def renew_at(self, uid: str) -> float | None:
        """When the first of a pod's tokens is due for renewal."""
        return min((token.renew_at for (owner, _), token in self._kept.items() if owner == uid), default=None)

    def forget(self, uid: str) -> None:
        for key in [key for key in self._kept if key[0] == uid]:
            del self._kept[key]
