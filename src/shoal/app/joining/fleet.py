"""The fleet's side of a cluster that joins or leaves: its tokens and join files, and whether its agents have come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from shoal.app.public_address import is_loopback
from shoal.cli.fleet.kinds import ROOT
from shoal.cli.fleet.tokens import JoinAddresses
from shoal.cli.rest import RequestRefused, Rest
from shoal.errors import ConfigError, ShoalError

SHARD = "default"
_NAVIGATOR = "/api/v1"
_GRACE_S = 3600


class StillUsed(ShoalError):
    """The cluster has deployments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAddresses:
    """Where a cluster's agents find the fleet; empty: where this command finds it."""

    control: tuple[str, ...] = ()
    navigator: str = ""
    ca: str = ""  # CA certificates to add, PEM

    def __post_init__(self) -> None:
        JoinAddresses(urls=self.control, ca=self.ca)  # checks them
        if self.navigator and not self.navigator.startswith("https://"):
            raise ConfigError(f"navigator_url is {self.navigator!r}: use https://HOST:PORT")


class FleetSide:
    """``navigator`` is None where the context knows none."""

    def __init__(self, control: Rest, navigator: Rest | None) -> None:
        self._control = control
        self._navigator = navigator

    @property
    def has_navigator(self) -> bool:
        return self._navigator is not None

    def region(self, cluster: str, given: str) -> str:
        """The region of a cluster that the fleet knows, else the one given."""
        try:
            known = str(self._control.get(f"{ROOT}/clusters/{quote(cluster, safe='')}")["spec"]["region"])
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            return given
        if given and given != known:
            raise ConfigError(
                f"region is {given!r}: cluster {cluster} is in region {known!r}; leave --region out, or let the "
                f"cluster leave first: shoal cluster leave {cluster}"
            )
        return known

    def agent_join(self, cluster: str, region: str, addresses: FleetAddresses) -> dict[str, Any]:
        """The join file of the cluster's agent. Joining again replaces the token; the old one works for an hour."""
        tokens = self._agent_tokens(cluster)
        body: dict[str, Any]
        if tokens:
            path, body = f"{ROOT}/tokens/{tokens[-1]['id']}/rotate", {"graceSeconds": _GRACE_S}
        else:
            path = f"{ROOT}/tokens"
            body = {
                "kind": "agent", "name": f"agent-{cluster}", "cluster": cluster, "region": region, "shard": SHARD,
            }  # fmt: skip
        made = self._control.request("POST", path, body).body
        found: dict[str, Any] = JoinAddresses(urls=addresses.control, ca=addresses.ca).put_into(made)["join"]
        return found

    def edge_join(self, cluster: str, region: str, addresses: FleetAddresses) -> dict[str, Any] | None:
        """The join file of the cluster's edge; None without a navigator."""
        if self._navigator is None:
            return None
        made = self._navigator.request("POST", f"{_NAVIGATOR}/edges/{quote(cluster, safe='')}/token").body
        context = self._navigator.context
        authorities = "\n".join(text.strip() for text in (context.ca, addresses.ca) if text.strip())
        return {
            "url": addresses.navigator or context.url, "token": made["token"], "cluster": cluster, "region": region,
            **({"ca": f"{authorities}\n"} if authorities else {}),
        }  # fmt: skip

    def agent_state(self, cluster: str) -> str:
        """How the control plane knows the agent: empty when it has joined and is alive."""
        for each in self._control.get(f"{ROOT}/agents")["items"]:
            if each["cluster"] == cluster and each["shard"] == SHARD:
                return "" if each["state"] == "Joined" else "not heard from for a while"
        return "not joined yet"

    def edge_state(self, cluster: str) -> str:
        """How the navigator knows the edge: empty when it is connected."""
        if self._navigator is None:
            return ""
        try:
            found = self._navigator.get(f"{_NAVIGATOR}/clusters/{quote(cluster, safe='')}")
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            return "not joined yet"
        return (
            "" if found["freshness"] in ("healthy", "initializing") else f"the navigator's data is {found['freshness']}"
        )

    def remove(self, cluster: str, *, force: bool) -> list[str]:
        """Forget a cluster and revoke its tokens; returns what was done. ``StillUsed`` if it has deployments, unless
        ``force``, which leaves it in the fleet without an agent."""
        done = []
        name = quote(cluster, safe="")
        try:
            self._control.request("DELETE", f"{ROOT}/clusters/{name}")
            done.append(f"control plane: cluster {cluster} removed")
        except RequestRefused as refused:
            if refused.status == 409 and not force:
                raise StillUsed(
                    f"cluster {cluster} cannot leave: {refused.message}; move its apps away (shoal move) or delete "
                    "them, or leave them there with --force: they keep running, and nothing keeps them as desired"
                ) from None
            if refused.status not in (404, 409):
                raise
            if refused.status == 409:
                done.append(
                    f"control plane: cluster {cluster} stays without an agent, because it has deployments; when they "
                    f"are gone: shoal delete cluster {cluster}"
                )
        for token in self._agent_tokens(cluster):
            self._control.request("DELETE", f"{ROOT}/tokens/{token['id']}")
            done.append(f"control plane: token {token['name']} revoked")
        if self._navigator is not None:
            self._navigator.request("DELETE", f"{_NAVIGATOR}/edges/{name}/token")
            done.append("navigator: tokens revoked")
        return done

    def forget(self, cluster: str) -> list[str]:
        """Remove the cluster's objects from the navigator, after its edge has gone."""
        if self._navigator is None:
            return []
        try:
            self._navigator.request(
                "DELETE", f"{_NAVIGATOR}/clusters/{quote(cluster, safe='')}", params={"revoke": True}
            )
        except RequestRefused as refused:
            if refused.status != 404:
                raise
            return []
        return [f"navigator: cluster {cluster} forgotten"]

    def _agent_tokens(self, cluster: str) -> list[dict[str, Any]]:
        found = self._control.get(f"{ROOT}/tokens", kind="agent")["items"]
        return [each for each in found if each["cluster"] == cluster and each["state"] == "active"]


def loopback_urls(joins: Sequence[dict[str, Any] | None]) -> list[str]:
    """The URLs in join files that only this machine can reach."""
    urls = [url for join in joins if join is not None for url in (join["url"], *(join.get("urls") or ()))]
    return list(dict.fromkeys(url for url in urls if is_loopback(urlsplit(url).hostname or "")))
