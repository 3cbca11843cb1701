"""What of the database gateways are made of: their peers in other regions, the certificate they show them, and their
routes, policies and keys. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.control.database.plain import document
from shoal.control.domain.kinds.places import SERVICES
from shoal.control.service import render
from shoal.control.service.directory import RegionFacts
from shoal.control.service.gateway_specs import policy_spec, route_spec

VARIABLES = ("tls.crt", "tls.key")
_FAR = 1_000_000  # a region whose distance nobody has said


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


def certificates(rows: Iterable[Any]) -> dict[str, Certificate]:
    """By workspace. ``rows`` are in the order of revisions."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    made: dict[str, Certificate] = {}
    for workspace, known in found.items():
        shown = [row for row in known if row[7]]
        if shown:
            _, id_, revision, _, ciphertext, data_key, master_key, _ = shown[-1]
            believed = b"".join(bytes(row[3]) for row in known)
            made[workspace] = Certificate(id_, revision, bytes(ciphertext), bytes(data_key), master_key, believed)
    return made


def sentinel_row(row: Any, others: Sequence[Any], regions: Mapping[str, RegionFacts]) -> render.SentinelRow:
    """``row`` is of the gateway, ``others`` of those of its environment and the shared ones."""
    spec = document(row[7]) or {}
    here = regions.get(row[8])
    distances = here.distances if here is not None else {}
    return render.SentinelRow(
        id=row[0], workspace=row[1], project=row[2], environment=row[3], name=row[4], image=row[5],
        replicas=row[6] if row[9] == "running" else 0, resources=spec.get("resources") or {},
        region=here.name if here is not None else "",
        service=(here.service if here is not None else "") or SERVICES[0],
        peers=[
            render.PeerRow(
                region=regions[peer[2]].name,
                address=address,
                distance=distances.get(regions[peer[2]].name, _FAR),
                healthy=peer[4] == "healthy",
            )
            for peer in _peers(row, others)
            if peer[2] in regions
            for address in regions[peer[2]].entries or document(peer[3]) or ()
        ],
    )  # fmt: skip


def _peers(row: Any, others: Sequence[Any]) -> list[Any]:
    """In each other region the environment's own gateway, else the shared one; a shared one has only shared ones."""
    workspace, environment, region = row[1], row[3], row[8]
    chosen: dict[str, Any] = {}
    for peer in sorted(others, key=lambda one: one[0] != environment):
        if peer[5] == workspace and peer[0] in (environment, "") and peer[2] != region:
            chosen.setdefault(peer[2], peer)
    return [chosen[region] for region in sorted(chosen)]


def custom_row(kind: str, row: Any, targets: Mapping[str, Any]) -> render.CustomRow:
    spec = document(row[4])
    made = route_spec(spec, row[2], *targets[row[2]]) if kind == "route" else policy_spec(spec, row[2])
    return render.CustomRow(kind=kind, workspace=row[1], environment=row[2], name=row[3], spec=made)


def keys_rows(rows: list[Any]) -> dict[str, render.CustomRow]:
    """The keys of an environment are one object: digests, never the keys."""
    found: dict[str, render.CustomRow] = {}
    for row in rows:
        known = found.get(row[0])
        if known is None:
            known = found[row[0]] = render.CustomRow(
                kind="keys", workspace=row[1], environment=row[2], name=row[3], spec={"keys": []}
            )
        if row[4] is not None:
            known.spec["keys"].append(
                {"id": row[4], "name": row[5], "digest": row[6], "prefix": row[7], "expiresAt": row[8],
                 "spec": document(row[9])}
            )  # fmt: skip
    return found
