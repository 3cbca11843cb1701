"""Reads the objects behind rows of ``desired``, with one statement per kind for any number of rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncSession

from shoal.base.logs import get_logger
from shoal.control.database.plain import document, listed
from shoal.control.database.rows import Ask, R, RowQuery
from shoal.control.domain.model import Sealer
from shoal.control.domain.plan import secrets_of
from shoal.control.domain.routing import RouteTargets, read_targets
from shoal.control.service.desired import render
from shoal.control.service.desired.directory import Directory, RegionFacts
from shoal.control.service.desired.gateway_rows import Certificate, certificates, custom_row, keys_rows, sentinel_row
from shoal.control.service.desired.model import DesiredRow, Failure
from shoal.control.service.desired.queries import (
    Queries,
    StoredConfig,
    StoredDeployment,
    StoredPeer,
    StoredSecret,
    StoredSentinel,
)
from shoal.control.service.desired.states import StateCache
from shoal.sync.keys import Place, stream_of

RENDERED = 25  # before other tasks may run

_log = get_logger("control.service.desired")

Where = tuple[Place, str]  # place and key


async def desired_rows(ask: Ask, statements: Queries, asked: list[Where]) -> dict[Where, DesiredRow]:
    keys = [[place.cluster, place.shard, stream_of(key), key] for place, key in asked]
    found = await ask(statements.desired, {"rows": listed(keys)})
    return {(Place(row.cluster_id, row.shard), row.key): row for row in found}


class _Topology(NamedTuple):
    """Where a deployment runs, as it is stored, with the name of the region; a key of what was rendered."""

    region: str
    replicas: int
    autoscaling: Any
    overrides: Any
    desired_status: str
    taken_from: str
    instances: int | None
    check_jobs: Any
    cluster: str

    def parsed(self) -> render.TopologyRow:
        return render.TopologyRow(
            region=self.region,
            replicas=self.replicas if self.instances is None else self.instances,
            autoscaling=document(self.autoscaling) if self.instances is None else None,
            overrides=document(self.overrides) or {},
            desired_status=self.desired_status,
            taken_from=self.taken_from,
            check_jobs=document(self.check_jobs) or (),
            cluster=self.cluster,
        )


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
        ask: Ask,
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
        self._sealed: dict[tuple[str, str], StoredSecret] = {}  # by environment and name
        self._gateways: dict[Where, tuple[StoredSentinel, list[StoredPeer]]] = {}
        self._certificates: dict[str, Certificate] = {}
        # routes with certificates, their names, and these
        self._secure: dict[Where, tuple[render.CustomRow, str, StoredSecret | None]] = {}
        self._public_keys: dict[Place, bytes] = {}
        self._directory = directory
        self._sealer = sealer

    async def states(self, wanted: Mapping[Where, DesiredRow]) -> dict[Where, render.State | Failure]:
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
            elif kind == "keys":
                states |= await self._keys(asked, names)
            elif kind in self._queries.configs:
                states |= await self._custom(kind, asked, names)
        return states

    def public_key(self, place: Place) -> bytes:
        """Of the agent of a place, the same one during the whole reading: another one may join meanwhile."""
        return self._public_keys.setdefault(place, self._directory.public_key(place))

    async def _rows(self, statement: RowQuery[R], ids: Iterable[str]) -> list[R]:
        return await self._ask(statement, {"ids": listed(sorted(set(ids)))})

    async def _read_deployments(self, asked: Mapping[Where, str]) -> None:
        rows = {row.id: row for row in await self._rows(self._queries.deployments, asked.values())}
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
            self._deployments[where] = _Deployment(parsed[id_], topo.parsed(), (row, topo))
        self._sealed = await self._secrets({row.environment for row in parsed.values() if secrets_of(row.template)})

    async def deployments(self) -> dict[Where, render.State | Failure]:
        """Those that were read, with their secrets wrapped. The database is not needed any more."""
        states: dict[Where, render.State | Failure] = dict(self._encoded)
        for count, (where, read) in enumerate(self._deployments.items(), 1):
            if count % RENDERED == 0:
                await asyncio.sleep(0)
            template = read.row.template
            secrets = await self._wrapped(where[0], read.row, template.get("secrets") or ())
            registries = await self._wrapped(where[0], read.row, template.get("imagePullSecrets") or ())
            try:
                is_complete = secrets is not None and registries is not None
                states[where] = self._encode(read, secrets or [], registries or []) if is_complete else Failure.LATER
            except (ValueError, KeyError, TypeError) as error:
                _log.error("a deployment cannot be rendered for agents", deployment=read.row.id, error=error)
                states[where] = Failure.BROKEN
        return states

    def _encode(
        self, read: _Deployment, secrets: list[render.SecretRow], registries: list[render.SecretRow]
    ) -> render.State:
        if secrets or registries:
            return render.deployment_state(read.row, read.topology, secrets, registries)
        known = self._states.get(read.key)  # made for another place a moment ago
        if known is None:
            known = render.EncodedDeployment(render.deployment_state(read.row, read.topology, []).to_binary())
            self._states.put(read.key, known)
        return known

    async def _topology(self, asked: Mapping[Where, str]) -> dict[tuple[str, Place], _Topology]:
        rows = [[id_, place.cluster, place.shard] for (place, _), id_ in asked.items()]
        found: dict[tuple[str, Place], _Topology] = {}
        for row in await self._ask(self._queries.topology, {"rows": listed(rows)}):
            where = row.deployment_id, Place(row.cluster_id, row.shard)
            if row.desired_status == "gone" and where in found:
                continue
            found[where] = _Topology(
                self._region(row.region_id), row.replicas, row.autoscaling, row.overrides, row.desired_status,
                row.taken_from or "", row.instances, row.check_jobs, row.cluster_id,
            )  # fmt: skip
        return found

    async def _secrets(self, environments: set[str]) -> dict[tuple[str, str], StoredSecret]:
        if not environments:
            return {}
        rows = await self._rows(self._queries.secrets, environments)
        return {(row.environment_id, row.name): row for row in rows}

    async def _wrapped(
        self, place: Place, row: render.DeploymentRow, names: Iterable[str]
    ) -> list[render.SecretRow] | None:
        """Secrets of a deployment for the agent of a place; None when they cannot be wrapped now."""
        found: list[render.SecretRow] = []
        for name in names:
            secret = self._sealed.get((row.environment, name))
            if secret is None:  # deleted since: never left out silently, the agent says that it is missing
                gone = render.SecretRow(id=name, revision=0, wrapped_key=b"", ciphertext=b"", variables=[])
                found.append(gone)
                continue
            wrapped = await self._wrapped_one(place, secret)
            if wrapped is None:
                return None
            found.append(wrapped)
        return found

    async def _wrapped_one(self, place: Place, secret: StoredSecret) -> render.SecretRow | None:
        """``secret`` is as it was read."""
        public_key = self.public_key(place)
        try:
            wrapped = await self._sealer.rewrap(secret.data_key, secret.master_key, public_key) if public_key else b""
        except Exception as error:  # whatever keeps the keys has its own errors, and none may stop other objects
            _log.warning("a secret cannot be wrapped now", secret_id=secret.id, place=str(place), error=str(error))
            return None
        return render.SecretRow(
            id=secret.id,
            revision=secret.revision,
            wrapped_key=wrapped,
            ciphertext=secret.ciphertext,
            variables=_variables(document(secret.spec)),
        )

    async def _read_gateways(self, asked: Mapping[Where, str]) -> None:
        rows = {row.id: row for row in await self._rows(self._queries.sentinels, asked.values())}
        others = await self._rows(self._queries.peers, {"", *(row.environment_id for row in rows.values())})
        workspaces = {row.workspace_id for row in rows.values()}
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
                _log.error("a gateway cannot be rendered for agents", sentinel=row.id, error=error)
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
        rows = await self._rows(self._queries.configs[kind], asked.values())
        targets: Mapping[str, RouteTargets] = {}
        if kind == "route" and rows:
            assert self._session is not None
            targets = await read_targets(self._session, {row.environment_id for row in rows})
        stored = {row.id: row for row in rows}
        made: dict[tuple[str, str], render.CustomRow | None] = {}  # by object and region
        states: dict[Where, render.State | Failure] = {}
        secure: dict[Where, render.CustomRow] = {}
        for where, id_ in asked.items():
            if id_ not in stored:
                continue
            region = self._region_of(where[0]) if kind == "route" else ""
            if (id_, region) not in made:
                made[id_, region] = _made(kind, stored[id_], targets, region)
            one = made[id_, region]
            if one is None:
                states[where] = Failure.BROKEN
            elif kind == "route" and one.spec.get("tls"):
                secure[where] = one
            else:
                states[where] = render.custom_state(one, names[where])
        sealed = await self._secrets({one.environment for one in secure.values()})
        for where, one in secure.items():
            secret = sealed.get((one.environment, one.spec["tls"]["secret"]))
            self._secure[where] = (one, names[where], secret)
        return states

    def _region_of(self, place: Place) -> str:
        cluster = self._directory.cluster_of(place.cluster)
        if cluster is None:
            self.unknown_regions = True
            return ""
        return cluster.region_id

    async def _keys(
        self, asked: Mapping[Where, str], names: Mapping[Where, str]
    ) -> dict[Where, render.State | Failure]:
        made = keys_rows(await self._rows(self._queries.keys, asked.values()))
        return {where: render.custom_state(made[id_], names[where]) for where, id_ in asked.items() if id_ in made}

    async def secure_routes(self) -> dict[Where, render.State | Failure]:
        """Those that were read and have certificates, with these wrapped."""
        states: dict[Where, render.State | Failure] = {}
        for where, (row, name, secret) in self._secure.items():
            wrapped = await self._wrapped_one(where[0], secret) if secret is not None else None
            failed = secret is not None and wrapped is None
            states[where] = Failure.LATER if failed else render.custom_state(row, name, wrapped)
        return states


def _made(kind: str, row: StoredConfig, targets: Mapping[str, RouteTargets], region_id: str) -> render.CustomRow | None:
    """A route or policy for the gateways of a region; None when it cannot be rendered."""
    try:
        return custom_row(kind, row, targets, region_id)
    except (ValueError, KeyError, TypeError) as error:
        _log.error("a gateway setting cannot be rendered for agents", key=f"{kind}/{row.id}", error=error)
        return None


def _deployment(row: StoredDeployment) -> render.DeploymentRow:
    spec, template = document(row.app_spec) or {}, document(row.template)
    return render.DeploymentRow(
        id=row.id, workspace=row.workspace_id, project=row.project_id, environment=row.environment_id, app=row.app_id,
        namespace=row.namespace, name=row.k8s_name, app_name=row.app_name or "", project_name=row.project_name or "",
        environment_name=row.environment_name or "", revision=row.revision, image=row.image, template=template,
        git=document(row.git) or template.get("git") or {}, desired_state=row.desired_state,
        drift=spec.get("drift") or "",
    )  # fmt: skip


def _variables(spec: Any) -> list[str]:
    names = (spec or {}).get("variables") or ()
    return sorted(names)
