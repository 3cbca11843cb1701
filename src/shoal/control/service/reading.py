"""Reads the objects behind rows of ``desired``, as they are shown to agents: a statement per kind for any number."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database.moments import Rows
from shoal.control.database.plain import document, listed
from shoal.control.domain.model import Sealer
from shoal.control.domain.routing import read_targets
from shoal.control.service import render
from shoal.control.service.directory import Directory, RegionFacts
from shoal.control.service.gateway_rows import Certificate, certificates, custom_row, keys_rows, sentinel_row
from shoal.control.service.protocol import Failure
from shoal.control.service.queries import Queries
from shoal.control.service.states import StateCache
from shoal.sync.keys import Place, stream_of

RENDERED = 25  # between two turns of the event loop

_log = get_logger("control.service.desired")

Where = tuple[Place, str]  # place and key


async def desired_rows(ask: Rows, statements: Queries, asked: list[Where]) -> dict[Where, render.DesiredRow]:
    rows = [[place.cluster, place.shard, stream_of(key), key] for place, key in asked]
    found: dict[Where, render.DesiredRow] = {}
    for row in await ask(statements.desired, {"rows": listed(rows)}):
        found[Place(row[0], row[1]), row[3]] = render.DesiredRow(
            key=row[3], kind=row[4], object_id=row[5], workspace=row[6], action=row[7], number=row[8],
            by_user=bool(row[9]), committed_ms=row[10], trace=row[11], namespace=row[12], name=row[13],
            gone=row[14] > 0,
        )  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class _Deployment:
    """What was read of a deployment at a place; ``key`` is the same as it was stored."""

    row: render.DeploymentRow
    topology: render.TopologyRow
    key: Any


class Reading:
    """Reads the objects behind rows of ``desired``, a statement per kind."""

    def __init__(
        self,
        ask: Rows,
        session: AsyncSession | None,  # for what is more than a few short statements
        statements: Queries,
        directory: Directory,
        sealer: Sealer,
        regions: Mapping[str, RegionFacts],
        states: StateCache,
    ) -> None:
        self._ask = ask
        self._session = session
        self._queries = statements
        self._states = states
        self._regions = regions
        self.began = directory.now()
        self.unknown_regions = False
        self.found: dict[Where, render.State | Failure] = {}
        self._deployments: dict[Where, _Deployment] = {}
        self._encoded: dict[Where, render.EncodedDeployment] = {}
        self._sealed: dict[tuple[str, str], Any] = {}  # by environment and name
        self._gateways: dict[Where, tuple[Any, list[Any]]] = {}
        self._certificates: dict[str, Certificate] = {}
        self._secure: dict[Where, tuple[render.CustomRow, str, Any]] = {}  # routes with certificates, and these
        self._public_keys: dict[Place, bytes] = {}
        self._directory = directory
        self._sealer = sealer

    async def states(self, wanted: Mapping[Where, render.DesiredRow]) -> dict[Where, render.State | Failure]:
        by_kind: dict[str, dict[Where, str]] = {}
        for where, row in wanted.items():
            by_kind.setdefault(row.kind, {})[where] = row.object_id
        names = {where: row.name for where, row in wanted.items()}
        states: dict[Where, render.State | Failure] = {}
        for kind, asked in by_kind.items():
            if kind == "deployment":
                await self._read_deployments(asked)
            elif kind == "sentinel":
                await self._read_gateways(asked)
            elif kind in self._queries.custom:
                states |= await self._custom(kind, asked, names)
        return states

    def public_key(self, place: Place) -> bytes:
        """Of the agent of a place, the same one during the whole reading: another one may join meanwhile."""
        return self._public_keys.setdefault(place, self._directory.public_key(place))

    async def _rows(self, statement: Any, ids: Iterable[str]) -> list[Any]:
        return await self._ask(statement, {"ids": listed(sorted(set(ids)))})

    async def _read_deployments(self, asked: Mapping[Where, str]) -> None:
        rows = {row[0]: tuple(row) for row in await self._rows(self._queries.deployments, asked.values())}
        topology = await self._topology(asked)
        parsed: dict[str, render.DeploymentRow] = {}
        for where, id_ in asked.items():
            row, topo = rows.get(id_), topology.get((id_, where[0]))
            if row is None or topo is None:
                continue  # wanted without being there: ``render.item`` refuses it
            encoded = self._states.get((row, topo))
            if encoded is not None:
                self._encoded[where] = encoded
                continue
            if id_ not in parsed:
                parsed[id_] = _deployment(row)
            self._deployments[where] = _Deployment(parsed[id_], _topology(topo), (row, topo))
        self._sealed = await self._secrets({row.environment for row in parsed.values() if row.template.get("secrets")})

    async def deployments(self) -> dict[Where, render.State | Failure]:
        """Those that were read, with their secrets wrapped. The database is not needed any more."""
        states: dict[Where, render.State | Failure] = dict(self._encoded)
        for count, (where, read) in enumerate(self._deployments.items(), 1):
            if count % RENDERED == 0:
                await asyncio.sleep(0)
            secrets = await self._wrapped(where[0], read.row, self._sealed)
            try:
                states[where] = Failure.LATER if secrets is None else self._encode(read, secrets)
            except (ValueError, KeyError, TypeError) as error:
                _log.error("a deployment cannot be shown to agents", deployment=read.row.id, error=error)
                states[where] = Failure.BROKEN
        return states

    def _encode(self, read: _Deployment, secrets: list[render.SecretRow]) -> render.State:
        if read.row.template.get("secrets"):
            return render.deployment_state(read.row, read.topology, secrets)
        known = self._states.get(read.key)  # made for another place a moment ago
        if known is None:
            known = render.EncodedDeployment(render.deployment_state(read.row, read.topology, []).to_binary())
            self._states.put(read.key, known)
        return known

    async def _topology(self, asked: Mapping[Where, str]) -> dict[tuple[str, Place], tuple[Any, ...]]:
        """Region, replicas, autoscaling, overrides, desired status, as they are stored; the shard it comes from."""
        rows = [[id_, place.cluster, place.shard] for (place, _), id_ in asked.items()]
        found: dict[tuple[str, Place], tuple[Any, ...]] = {}
        for row in await self._ask(self._queries.topology, {"rows": listed(rows)}):
            where = row[0], Place(row[1], row[2])
            if row[7] == "gone" and where in found:
                continue
            found[where] = (self._region(row[3]), row[4], row[5], row[6], row[7], row[9] or "")
        return found

    async def _secrets(self, environments: set[str]) -> dict[tuple[str, str], Any]:
        if not environments:
            return {}
        return {(row[0], row[1]): row for row in await self._rows(self._queries.secrets, environments)}

    async def _wrapped(
        self, place: Place, row: render.DeploymentRow, sealed: Mapping[tuple[str, str], Any]
    ) -> list[render.SecretRow] | None:
        """The secrets of a deployment for the agent of a place; None when they cannot be wrapped now."""
        found: list[render.SecretRow] = []
        for name in row.template.get("secrets") or ():
            secret = sealed.get((row.environment, name))
            if secret is None:  # deleted since: never left out silently, the agent says that it is missing
                gone = render.SecretRow(id=name, revision=0, wrapped_key=b"", ciphertext=b"", variables=[])
                found.append(gone)
                continue
            wrapped = await self._wrapped_one(place, secret)
            if wrapped is None:
                return None
            found.append(wrapped)
        return found

    async def _wrapped_one(self, place: Place, secret: Any) -> render.SecretRow | None:
        """``secret`` is as it was read."""
        public_key = self.public_key(place)
        try:
            wrapped = await self._sealer.rewrap(secret[5], secret[6], public_key) if public_key else b""
        except Exception as error:  # whatever keeps the keys has its own errors, and none may stop other objects
            _log.warning("a secret cannot be wrapped now", secret_id=secret[2], place=str(place), error=str(error))
            return None
        return render.SecretRow(
            id=secret[2],
            revision=secret[3],
            wrapped_key=wrapped,
            ciphertext=secret[4],
            variables=_variables(document(secret[7])),
        )

    async def _read_gateways(self, asked: Mapping[Where, str]) -> None:
        rows = {row[0]: row for row in await self._rows(self._queries.sentinels, asked.values())}
        others = await self._rows(self._queries.peers, {"", *(row[3] for row in rows.values())})
        workspaces = {row[1] for row in rows.values()}
        self._certificates = certificates(await self._rows(self._queries.certificates, workspaces))
        self._gateways = {where: (rows[id_], others) for where, id_ in asked.items() if id_ in rows}

    async def gateways(self) -> dict[Where, render.State | Failure]:
        """Those that were read, with their certificates wrapped. The database is not needed any more."""
        states: dict[Where, render.State | Failure] = {}
        if self._gateways:  # they may be sent because a region has changed
            await self._directory.refresh_places(self._directory.now())
            self._regions = await self._directory.regions()
        for where, (row, others) in self._gateways.items():
            try:
                states[where] = await self._gateway(where[0], sentinel_row(row, others, self._regions))
            except (ValueError, KeyError, TypeError) as error:
                _log.error("a gateway cannot be shown to agents", sentinel=row[0], error=error)
                states[where] = Failure.BROKEN
        return states

    async def _gateway(self, place: Place, row: render.SentinelRow) -> render.State | Failure:
        certificate, public_key = self._certificates.get(row.workspace), self.public_key(place)
        if certificate is None or not public_key:
            return render.sentinel_state(row, None)
        try:
            wrapped = await self._sealer.rewrap(certificate.data_key, certificate.master_key, public_key)
        except Exception as error:  # whatever keeps the keys has its own errors, and none may stop other objects
            _log.warning("a certificate cannot be wrapped now", sentinel=row.id, place=str(place), error=str(error))
            return Failure.LATER
        return render.sentinel_state(row, certificate.sealed(wrapped))

    def _region(self, region_id: str) -> str:
        region = self._regions.get(region_id)
        if region is None:
            self.unknown_regions = True
            return ""
        return region.name

    async def _custom(
        self, kind: str, asked: Mapping[Where, str], names: Mapping[Where, str]
    ) -> dict[Where, render.State | Failure]:
        rows = await self._rows(self._queries.custom[kind], asked.values())
        targets: Mapping[str, Any] = {}
        if kind == "route" and rows:
            assert self._session is not None
            targets = await read_targets(self._session, {row[2] for row in rows})
        made = keys_rows(rows) if kind == "keys" else {}
        states: dict[Where, render.State | Failure] = {}
        if kind != "keys":
            for row in rows:
                try:
                    made[row[0]] = custom_row(kind, row, targets)
                except (ValueError, KeyError, TypeError) as error:
                    _log.error("a setting of gateways cannot be shown to agents", key=f"{kind}/{row[0]}", error=error)
                    states |= {where: Failure.BROKEN for where, id_ in asked.items() if id_ == row[0]}
        secure = {id_: row for id_, row in made.items() if kind == "route" and row.spec.get("tls")}
        sealed = await self._secrets({row.environment for row in secure.values()})
        for where, id_ in asked.items():
            if id_ in secure:
                row = secure[id_]
                secret = sealed.get((row.environment, row.spec["tls"]["secret"]))
                self._secure[where] = (row, names[where], secret)
            elif id_ in made:
                states[where] = render.custom_state(made[id_], names[where])
        return states

    async def secure_routes(self) -> dict[Where, render.State | Failure]:
        """Those that were read and have certificates, with these wrapped."""
        states: dict[Where, render.State | Failure] = {}
        for where, (row, name, secret) in self._secure.items():
            wrapped = await self._wrapped_one(where[0], secret) if secret is not None else None
            failed = secret is not None and wrapped is None
            states[where] = Failure.LATER if failed else render.custom_state(row, name, wrapped)
        return states


def _topology(row: tuple[Any, ...]) -> render.TopologyRow:
    region, replicas, autoscaling, overrides, status, taken_from = row
    return render.TopologyRow(
        region=region,
        replicas=replicas,
        autoscaling=document(autoscaling),
        overrides=document(overrides) or {},
        desired_status=status,
        taken_from=taken_from,
    )


def _deployment(row: Any) -> render.DeploymentRow:
    spec, template = document(row[15]) or {}, document(row[12])
    return render.DeploymentRow(
        id=row[0], workspace=row[1], project=row[2], environment=row[3], app=row[4], namespace=row[5], name=row[6],
        app_name=row[7] or "", project_name=row[8] or "", environment_name=row[9] or "", revision=row[10],
        image=row[11], template=template, git=document(row[13]) or template.get("git") or {}, desired_state=row[14],
        drift=spec.get("drift") or "",
    )  # fmt: skip


def _variables(spec: Any) -> list[str]:
    names = (spec or {}).get("variables") or ()
    return sorted(names)
