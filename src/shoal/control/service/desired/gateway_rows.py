"""The database rows of a gateway: its peers in other regions, the certificate it presents to them, and its routes,
policies and keys. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.control.database.plain import document
from shoal.control.domain.gateway_rollouts.versions import EARLIER_IMAGE
from shoal.control.domain.kinds.places import SERVICES
from shoal.control.domain.routing import RouteTargets
from shoal.control.service.desired import render
from shoal.control.service.desired.directory import RegionFacts
from shoal.control.service.desired.gateway_specs import policy_spec, rollout_spec, route_spec
from shoal.control.service.desired.queries import StoredCertificate, StoredConfig, StoredKey, StoredPeer, StoredSentinel

VARIABLES = ("tls.crt", "tls.key")
_FAR = 1_000_000  # a region without a configured distance


@dataclass(frozen=True, slots=True)
class Certificate:
    """The one that gateways show, as it is stored, and everything that they believe."""

    id: str
    revision: int
    ciphertext: bytes
    data_key: bytes
    master_key: str
    authority: bytes

    def sealed(self, wrapped_key: bytes) -> render.EntryRow:
        secret = render.SecretRow(
            id=self.id,
            revision=self.revision,
            wrapped_key=wrapped_key,
            ciphertext=self.ciphertext,
            variables=VARIABLES,
        )
        return render.EntryRow(secret, self.authority)


def certificates(rows: Iterable[StoredCertificate]) -> dict[str, Certificate]:
    """By workspace. ``rows`` are in the order of revisions."""
    found: dict[str, list[StoredCertificate]] = {}
    for row in rows:
        found.setdefault(row.workspace_id, []).append(row)
    made: dict[str, Certificate] = {}
    for workspace, known in found.items():
        shown = [row for row in known if row.shown]
        if shown:
            one = shown[-1]
            trusted = b"".join(bytes(row.authority) for row in known)
            made[workspace] = Certificate(
                one.id, one.revision, bytes(one.ciphertext), bytes(one.data_key), one.master_key, trusted
            )
    return made


def sentinel_row(
    row: StoredSentinel, others: Sequence[StoredPeer], regions: Mapping[str, RegionFacts]
) -> render.SentinelRow:
    """``row`` is of the gateway, ``others`` of those of its environment and the shared ones."""
    spec, rollout = document(row.spec) or {}, document(row.rollout) or {}
    size = rollout.get("kept", row.desired_replicas)
    here = regions.get(row.region_id)
    distances = here.distances if here is not None else {}
    return render.SentinelRow(
        id=row.id, workspace=row.workspace_id, project=row.project_id, environment=row.environment_id,
        name=row.k8s_name, image=row.image or EARLIER_IMAGE,
        replicas=size if row.desired_state == "running" else 0, candidate=_candidate(rollout),
        resources=spec.get("resources") or {},
        region=here.name if here is not None else "",
        service=(here.service if here is not None else "") or SERVICES[0],
        peers=[
            render.PeerRow(
                region=regions[peer.region_id].name,
                address=address,
                distance=distances.get(regions[peer.region_id].name, _FAR),
                healthy=peer.health == "healthy",
            )
            for peer in _peers(row, others)
            if peer.region_id in regions
            for address in regions[peer.region_id].entries or document(peer.entries) or ()
        ],
    )  # fmt: skip


def _candidate(rollout: Mapping[str, Any]) -> render.GatewayCandidateRow | None:
    if not rollout:
        return None
    return render.GatewayCandidateRow(
        revision=rollout["revision"],
        image=rollout["image"] or EARLIER_IMAGE,
        resources=rollout["resources"],
        replicas=rollout["count"],
        covers=rollout["promoted"] and rollout["count"] > 0,
    )


def _peers(row: StoredSentinel, others: Sequence[StoredPeer]) -> list[StoredPeer]:
    """In each other region the environment's own gateway, else the shared one; a shared one has only shared ones."""
    chosen: dict[str, StoredPeer] = {}
    for peer in sorted(others, key=lambda one: one.environment_id != row.environment_id):
        is_theirs = peer.workspace_id == row.workspace_id and peer.environment_id in (row.environment_id, "")
        if is_theirs and peer.region_id != row.region_id:
            chosen.setdefault(peer.region_id, peer)
    return [chosen[region] for region in sorted(chosen)]


def custom_row(kind: str, row: StoredConfig, targets: Mapping[str, RouteTargets], region_id: str) -> render.CustomRow:
    """A policy is the same in all regions; a route leads to what serves the gateway's region."""
    spec, environment, rollout = document(row.spec), row.environment_id, {}
    if kind == "route":
        where = targets[environment]
        live = where.in_region(region_id)
        made, rollout = route_spec(spec, environment, live, where.pinned), rollout_spec(spec, live)
    else:
        made = policy_spec(spec, environment)
    return render.CustomRow(
        kind=kind, workspace=row.workspace_id, environment=environment, name=row.name, spec=made, rollout=rollout
    )


def keys_rows(rows: Iterable[StoredKey]) -> dict[str, render.CustomRow]:
    """By environment. The keys of an environment are one object: digests, never the keys."""
    found: dict[str, render.CustomRow] = {}
    for row in rows:
        environment = row.environment_id
        known = found.get(environment)
        if known is None:
            known = found[environment] = render.CustomRow(
                kind="keys", workspace=row.workspace_id, environment=environment, name=row.environment_name,
                spec={"keys": []},
            )  # fmt: skip
        if row.id is not None:
            known.spec["keys"].append(
                {"id": row.id, "name": row.name, "digest": row.digest, "prefix": row.prefix,
                 "expiresAt": row.expires_at, "spec": document(row.spec)}
            )  # fmt: skip
    return found
