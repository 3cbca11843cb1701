"""The use cases of the fleet, one transaction each. All changes by users and their tools pass through here.

``Fleet`` does what all kinds have in common: permissions, names, the check of the version, differences, the audit log,
and dry runs (``dry_run`` executes the change and rolls it back). What a kind needs besides is in its ``KindHandler``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from shoal.control.database import tables
from shoal.control.database.leftovers import forget_deleted_clusters
from shoal.control.database.transaction import Tx
from shoal.control.domain import entry, gateways, moves, readiness, writing
from shoal.control.domain.access import authorize
from shoal.control.domain.fingerprints import upgrade_row
from shoal.control.domain.hosts import PREVIEW_HOST, preview_host_of
from shoal.control.domain.infrastructure import ClusterHandler, RegionHandler, SentinelHandler
from shoal.control.domain.kind_handlers import (
    ApiKeyHandler,
    AppHandler,
    ApplyRequest,
    CredentialHandler,
    EnvironmentHandler,
    KindHandler,
    PolicyHandler,
    PreparedSecret,
    ProjectHandler,
    RouteHandler,
    SecretHandler,
)
from shoal.control.domain.kinds.app import AppSpec
from shoal.control.domain.kinds.credentials import SealedSpec
from shoal.control.domain.kinds.places import ClusterSpec, SentinelSpec
from shoal.control.domain.kinds.route import RouteSpec
from shoal.control.domain.model import (
    GROUP,
    Actor,
    Applied,
    Deleted,
    Diff,
    ObjectRef,
    Sealed,
)
from shoal.control.domain.objects import (
    ObjectScope,
    Row,
    document_of,
    find,
    find_within,
    get,
    visible_spec,
    workspace_of,
)
from shoal.control.domain.placement.facts import (
    read_counts,
    read_infrastructure,
)
from shoal.control.domain.refusals import DocumentsRefused, NamedObject, apps_led_to, needed_of, untried
from shoal.control.domain.rollouts.use_cases import RolloutCommands
from shoal.control.domain.specs import SpecDocument, kind_named, parse, read_app_spec
from shoal.control.domain.tenants import check_tenant
from shoal.control.domain.work import ID_LETTERS, PendingWork
from shoal.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    ServiceUnavailable,
    not_found,
)
from shoal.sync.versions import START, encode_cursor

HANDLERS: dict[str, KindHandler] = {
    "Project": ProjectHandler(),
    "Environment": EnvironmentHandler(),
    "App": AppHandler(),
    "Route": RouteHandler(),
    "Policy": PolicyHandler(),
    "ApiKey": ApiKeyHandler(),
    "Secret": SecretHandler(),
    "Credential": CredentialHandler(),
    "Sentinel": SentinelHandler(),
    "Region": RegionHandler(),
    "Cluster": ClusterHandler(),
}


_FEW = 20  # documents that may be written without leaving the event loop; apps that are looked at together


class Fleet(RolloutCommands):
    """Reading is in ``Queries``, transactions in ``Changes``, what concerns rollouts in ``RolloutCommands``."""

    async def apply(
        self,
        who: Actor,
        doc: SpecDocument | Any,
        *,
        dry_run: bool = False,
        if_match: int | None = None,
        create_only: bool = False,
        also: Callable[[Tx, Applied], Awaitable[None]] | None = None,
        forced: bool = False,
        is_hurried: bool = False,
        why: str = "",
    ) -> Applied:
        """Create or change one object. ``doc`` is as people write it, or parsed already. ``if_match`` is the version it
        must have, 0 that it must not exist. ``also`` is done in the same transaction. ``forced``: a revision that was
        taken back may be applied again. ``is_hurried``: a rollout that begins leaves out its steps. ``why`` is what a
        person said of it; the audit log and the rollout keep it."""
        document = doc if isinstance(doc, SpecDocument) else parse(doc)
        authorize(who, "apply", document.kind.name, self._operators)
        secret = await self._prepare(who, document, dry_run=dry_run)
        await self._reserve(who, document, dry_run=dry_run)
        async with self._changing(who, document.kind.name, dry_run=dry_run) as work:
            work.is_forced, work.is_hurried, work.why = forced, is_hurried, why
            applied = await self._apply(work, who, document, secret, if_match=if_match, create_only=create_only)
            if also is not None and not dry_run:
                await also(work.tx, applied)
        if document.kind.scope == "fleet" and applied.changed and not dry_run:
            await self.place_waiting()
        return replace(applied, dry_run=dry_run)

    async def apply_all(
        self, who: Actor, documents: Sequence[SpecDocument], *, dry_run: bool = False, forced: bool = False
    ) -> list[Applied]:
        """Create or change objects in this order, all or none; raise ``DocumentsRefused`` with the error of each that
        is refused. Objects of the fleet and of a workspace may be in different databases: then those of the workspace
        are tried before those of the fleet are written, and only a conflict in between leaves the latter written."""
        parts: dict[str, list[int]] = {}
        for position, document in enumerate(documents):
            database = self._databases.of(workspace_of(document.kind.name, who.workspace_id))
            parts.setdefault(database.name, []).append(position)
        secrets = [await self._prepare(who, each, dry_run=dry_run) for each in documents]
        await self._reserve_all(who, documents, dry_run=dry_run)
        done: dict[int, Applied] = {}
        tried = [parts[name] for name in sorted(parts, key=lambda name: name != self._databases.fleet.name)]
        if len(tried) > 1 and not dry_run:
            elsewhere = {_named(documents[position]) for position in tried[0]}
            await self._apply_part(who, documents, secrets, tried[1], elsewhere, dry_run=True, forced=forced)
        elsewhere = set()
        for part in tried:
            try:
                done |= await self._apply_part(who, documents, secrets, part, elsewhere, dry_run=dry_run, forced=forced)
            except DocumentsRefused as refused:
                raise DocumentsRefused(refused.errors, {} if dry_run else done) from None
            elsewhere |= {_named(documents[position]) for position in part} if dry_run else set()
        if not dry_run and any(documents[at].kind.scope == "fleet" and each.changed for at, each in done.items()):
            await self.place_waiting()
        return [replace(done[position], dry_run=dry_run) for position in range(len(documents))]

    async def _reserve_all(self, who: Actor, documents: Sequence[SpecDocument], *, dry_run: bool) -> None:
        errors: dict[int, ApiError] = {}
        for position, document in enumerate(documents):
            try:
                authorize(who, "apply", document.kind.name, self._operators)
                await self._reserve(who, document, dry_run=dry_run)
            except Forbidden:
                return  # refused with all others below
            except Invalid as error:
                errors[position] = error
        if errors:
            raise DocumentsRefused(errors)

    async def _apply_part(
        self,
        who: Actor,
        documents: Sequence[SpecDocument],
        secrets: Sequence[PreparedSecret | None],
        part: Sequence[int],
        elsewhere: Collection[NamedObject],
        *,
        dry_run: bool,
        forced: bool,
    ) -> dict[int, Applied]:
        """The documents of one database, in one transaction. ``elsewhere`` are objects that the other database will
        have: what needs them cannot be tried yet."""
        done: dict[int, Applied] = {}
        errors: dict[int, ApiError] = {}
        led_to = apps_led_to(documents)
        kind = documents[part[0]].kind.name
        database = self._databases.of(workspace_of(kind, who.workspace_id))
        async with self._changing(who, kind, dry_run=dry_run, short=len(part) <= _FEW) as first:
            waiting = list(part)
            while waiting:  # a document may need one that comes later: those that others need are written first
                again: list[int] = []
                for position in waiting:
                    work = self._work(first.tx, database, who.workspace_id)
                    work.is_forced = forced
                    try:
                        authorize(who, "apply", documents[position].kind.name, self._operators)
                        done[position] = await self._apply(
                            work, who, documents[position], secrets[position], led_to=led_to
                        )
                        await work.flush()
                    except ServiceUnavailable:
                        raise
                    except ApiError as error:
                        if needs := needed_of(error, elsewhere):
                            done[position] = untried(documents[position], needs)
                        else:
                            errors[position] = error
                            again.append(position)
                names = {_named(documents[position]) for position in waiting}
                stuck = len(again) == len(waiting)
                waiting = [] if stuck else [each for each in again if needed_of(errors[each], names)]
                for position in waiting:
                    del errors[position]
            left = {_named(documents[position]) for position in errors}
            if errors:
                raise DocumentsRefused({at: each for at, each in errors.items() if not needed_of(each, left)} or errors)
        return done

    async def _apply(
        self,
        work: PendingWork,
        who: Actor,
        document: SpecDocument,
        secret: PreparedSecret | None,
        *,
        if_match: int | None = None,
        create_only: bool = False,
        led_to: Collection[ObjectRef] = (),
    ) -> Applied:
        within = await self._within(work, who, document)
        row = await find(work.session, who.workspace_id, document.ref, within)
        writing.check_version(document.ref, row, if_match, create_only=create_only)
        if secret is not None and isinstance(row, tables.Secret):
            upgrade_row(secret.key, row)
        await self._read_places(work, document, row)
        request = ApplyRequest(doc=document, within=within, secret=secret, is_led_to=document.ref in led_to)
        return await self._write(work, who, request, row)

    async def delete(
        self,
        who: Actor,
        ref: ObjectRef,
        *,
        if_match: int | None = None,
        dry_run: bool = False,
        cascade: bool = False,
        keeps_running: bool = False,
    ) -> Deleted:
        """Delete one object. Projects and environments that are not empty need ``cascade``. ``keeps_running``: an app
        ends as an object of the fleet, and what runs of it goes on."""
        kind_named(ref.kind)
        authorize(who, "cascade" if cascade else "delete", ref.kind, self._operators)
        async with self._changing(who, ref.kind, dry_run=dry_run) as work:
            work.keeps_running = keeps_running
            row, within = await get(work.session, who.workspace_id, ref)
            writing.check_version(ref, row, if_match, create_only=False)
            work.infrastructure = await self._infrastructure_for(work, None)
            await self._look_elsewhere(work, row)
            shown = document_of(row, _outside(row, within))
            also = await HANDLERS[ref.kind].delete(work, row, within, cascade=cascade)
            await work.tx.number()
            work.tx.audit(
                workspace_id=row.workspace_id,
                action="release" if keeps_running else "delete",
                kind=ref.kind,
                object_id=row.id,
                name=str(ref),
                diff=[
                    Diff("spec", visible_spec(ref.kind, shown["spec"]), None).as_json(),
                    *(Diff(f"{each.kind} {each}", "present", None).as_json() for each in also),
                ],
            )
        if ref.kind == "Cluster" and not dry_run:
            await forget_deleted_clusters(self._databases)
        return Deleted(object=shown, also=also, effects=work.effects, dry_run=dry_run)

    async def move(
        self, who: Actor, ref: ObjectRef, region: str, cluster: str, shard: str = "", *, dry_run: bool = False
    ) -> Applied:
        """Move an app's deployments of a region to another cluster (or shard): the new ones become ready first."""
        _must_be(ref, "App")
        authorize(who, "move", ref.kind, self._operators)
        async with self._changing(who, "App", dry_run=dry_run) as work:
            row, within = await get(work.session, who.workspace_id, ref)
            assert isinstance(row, tables.App)
            await self._read_facts(work, {region})
            to = moves.target(await work.facts(region), row, region, cluster, shard)
            found = work.infrastructure.region_named(region)
            assert found is not None
            moved = await moves.move_app(work, row, found.id, to)
            if moved:
                await work.tx.number()
                where = Diff(f"topology[{region}]", None, f"{cluster}/{to.shard}")
                self._audit(work, "move", ref, row, [where])
                work.tx.event(
                    workspace_id=row.workspace_id, kind="App", object_id=row.id, name=str(ref), reason="Moving",
                    message=f"{who.actor} moves it to {cluster}/{to.shard}", region=region,
                )  # fmt: skip
        return Applied(
            object=document_of(row, within), created=False, changed=[], effects=work.effects, dry_run=dry_run
        )

    async def rotate_key(self, who: Actor, ref: ObjectRef) -> Applied:
        """A new key for an ApiKey object; the old one ends at once. The answer is the only place that has the key."""
        _must_be(ref, "ApiKey")
        authorize(who, "apply", "ApiKey", self._operators)
        async with self._changing(who, "ApiKey", dry_run=False) as work:
            row, within = await get(work.session, who.workspace_id, ref)
            assert isinstance(row, tables.ApiKey)
            once: dict[str, Any] = {}
            found = ApiKeyHandler().new_key(once)
            row.digest, row.prefix, row.updated_at = found["digest"], found["prefix"], work.now
            row.version = await work.tx.number()
            changed = [Diff("status.prefix", None, row.prefix)]
            self._audit(work, "rotate", ref, row, changed)
            await gateways.keys_changed(work, row.environment_id, row.workspace_id)
        return Applied(
            object=document_of(row, within, {"prefix": row.prefix, **once}), created=False, changed=changed,
            effects=work.effects,
        )  # fmt: skip

    async def forget_gateway(self, who: Actor, ref: ObjectRef) -> list[str]:
        """Wait no longer for a gateway to take its routes, until it is heard of again. Returns its pods that were
        waited for."""
        _must_be(ref, "Sentinel")
        authorize(who, "apply", ref.kind, self._operators)
        async with self._changing(who, ref.kind, dry_run=False) as work:
            row, _ = await get(work.session, who.workspace_id, ref)
            assert isinstance(row, tables.Sentinel)
            await work.tx.number()
            pods = await gateways.forget(work.session, row)
            if pods:
                self._audit(work, "forget", ref, row, [Diff("status.waiting", pods, None)])
                await readiness.sweep(work.tx, await readiness.under_way(work.session), defaults=self._gateways)
        return pods

    async def confirm_deletes(self, who: Actor, cluster: str, shard: str = "") -> list[str]:
        """A person agrees to the deletions that agents of a cluster hold back. Returns the shards it concerns."""
        authorize(who, "operate", "Cluster", self._operators)
        cursor = START
        for database in self._databases.all:
            async with database.transaction(actor=who.actor) as tx:
                number = await tx.number()  # taken, so that what is held from now on is after the cursor
                cursor = cursor.advanced(database.name, tx.incarnation, number - 1)
        text = encode_cursor(cursor, {database.name: database.signing_key for database in self._databases.all})
        async with self._changing(who, "Cluster", dry_run=False) as work:
            row, _ = await get(work.session, who.workspace_id, ObjectRef("Cluster", cluster))
            known = await read_infrastructure(work.session)
            agents = [each for at, each in known.agents.items() if at.cluster == row.id and shard in ("", at.shard)]
            for agent in agents:
                agent.confirmed_deletes = text
                self._audit(
                    work, "confirm-deletes", ObjectRef("Cluster", cluster), row, [Diff(agent.shard, None, text)]
                )
        return sorted(agent.shard for agent in agents)

    async def ensure_cluster(self, who: Actor, region: str, cluster: str, shard: str) -> None:
        """Make sure that a region, a cluster and its shard exist, as when a token for an agent is made."""
        await self._ensure(who, ObjectRef("Region", region), {})
        known = await self._ensure(who, ObjectRef("Cluster", cluster), {"region": region, "shards": [shard]})
        shards = known["spec"].get("shards") or []
        if known["spec"].get("region") != region:
            raise Conflict.of("cluster", GROUP, cluster, f"it is in region {known['spec'].get('region')}, not {region}")
        if shard not in shards:
            spec = {**known["spec"], "shards": [*shards, shard]}
            metadata = {name: known["metadata"][name] for name in ("name", "labels", "annotations")}
            await self.apply(who, {**known, "metadata": metadata, "spec": spec}, if_match=known["metadata"]["version"])

    async def ensure_workspace(self, workspace_id: str, name: str = "") -> None:
        """Note a workspace; nothing happens when it is known."""
        async with self._databases.of(workspace_id).transaction() as tx:
            if await tx.session.get(tables.Workspace, workspace_id) is None:
                tx.session.add(tables.Workspace(id=workspace_id, name=name or workspace_id, created_at=tx.now))

    async def place_waiting(self) -> int:
        """Place what had nowhere to go, after an agent joined or a cluster changed. Returns how many found a place."""
        found = 0
        for database in self._databases.all:
            async with database.reading() as session:
                regions = await moves.waiting_regions(session)
            if not regions:
                continue
            async with database.transaction() as tx:
                work = self._work(tx, database)
                await self._read_facts(work, None)
                found += await moves.place_waiting(work)
                await work.flush()
        return found

    async def sweep(self) -> None:
        """Apply changes that are due by time; to be called every few seconds."""
        for database in self._databases.all:
            async with database.reading() as session:
                overdue = await readiness.under_way(session)
            for at in range(0, len(overdue), _FEW):  # a few at a time: others wait for the counter
                async with database.transaction() as tx:
                    await readiness.sweep(tx, overdue[at : at + _FEW], defaults=self._gateways)
            await entry.keep(database, self._sealer, database.time.now_ms(), self._new_certificate_id)
        await self.place_waiting()
        await self.hosts.clean_up()
        for database in self._databases.all:
            await self.fingerprints.replace_old(database)

    def _new_certificate_id(self) -> str:
        return f"gwc_{self._ids.new_suffix(ID_LETTERS)}"

    async def _ensure(self, who: Actor, ref: ObjectRef, spec: dict[str, Any]) -> dict[str, Any]:
        doc = {"apiVersion": "shoal.dev/v1", "kind": ref.kind, "metadata": {"name": ref.name}, "spec": spec}
        try:
            return (await self.apply(who, doc, create_only=True)).object
        except AlreadyExists:
            return await self.get(who, ref)

    async def _reserve(self, who: Actor, document: SpecDocument, *, dry_run: bool) -> None:
        """Hosts are unique over all databases, so they are reserved before the one of the object is changed."""
        host, field = "", "spec.host"
        if isinstance(document.spec, RouteSpec):
            host = document.spec.host
        elif isinstance(document.spec, AppSpec):
            host, field = preview_host_of(document.raw), PREVIEW_HOST
        fault = await self.hosts.reserve(who.workspace_id, host, dry_run=dry_run, field=field) if host else None
        if fault is not None:
            raise Invalid.of(document.kind.name, GROUP, document.ref.name, [fault])

    async def _prepare(self, who: Actor, document: SpecDocument, *, dry_run: bool) -> PreparedSecret | None:
        """Sealing may ask a server for keys, so it is done before the database is."""
        if not isinstance(document.spec, SealedSpec) or document.spec.values is None:
            return None
        key = await self.fingerprints.of(self._databases.of(who.workspace_id))
        sealed = Sealed(b"", b"", "") if dry_run else await self._sealer.seal(document.spec.values)
        return PreparedSecret(sealed, key, key.of(document.spec.values))

    async def _within(self, work: PendingWork, who: Actor, document: SpecDocument) -> ObjectScope:
        ref = document.ref
        within = await find_within(work.session, who.workspace_id, ref.project, ref.environment)
        if isinstance(within, str):
            named = ref.project if within == "project" else ref.environment
            raise Invalid.of(ref.kind, GROUP, ref.name, [not_found(f"metadata.{within}", named)])
        return within

    async def _write(self, work: PendingWork, who: Actor, request: ApplyRequest, row: Row | None) -> Applied:
        document, handler = request.doc, HANDLERS[request.doc.kind.name]
        faults = await handler.check(work, request, row)
        if faults:
            raise Invalid.of(document.kind.name, GROUP, document.ref.name, faults)
        await check_tenant(work, who, document, row, self._operators)
        stored = await handler.stored(work, request)
        changed = writing.changes(document, row, stored)
        if row is not None and not changed:
            return self._answer(request, row, [], work, created=False)
        before = None if row is None else row.spec
        new_id = row.id if row is not None else work.new_id(document.kind.name)
        columns = await handler.columns(work, request, row, new_id)
        written = row if row is not None else writing.new_row(work, who, document, new_id)
        writing.fill(written, document, {**stored, **writing.kept(before, stored)}, columns)
        written.version, written.updated_at = await work.tx.number(), work.now
        await work.session.flush()
        await handler.written(work, request, written, before)
        noted = [*changed, Diff("reason", None, work.why)] if work.why else changed
        self._audit(work, "create" if row is None else "update", document.ref, written, noted)
        return self._answer(request, written, changed, work, created=row is None)

    def _answer(
        self, request: ApplyRequest, row: Row, changed: list[Diff], work: PendingWork, *, created: bool
    ) -> Applied:
        status = dict(request.once)
        if isinstance(row, tables.ApiKey):
            status["prefix"] = row.prefix
        if isinstance(row, tables.App):
            status |= {"deployment": row.deployment_id, "revision": row.revision, "live": row.live_deployment_id}
        within = _outside(row, request.within)
        return Applied(
            object=document_of(row, within, status),
            created=created,
            changed=changed,
            effects=work.effects,
            warnings=work.warnings,
        )

    async def _read_places(self, work: PendingWork, document: SpecDocument, row: Row | None) -> None:
        """What is known of the regions that a document concerns."""
        spec = document.spec
        if isinstance(spec, AppSpec):
            before = read_app_spec(row.spec).topology if row is not None else ()
            await self._read_facts(work, {each.region for each in (*spec.topology, *before)})
        elif isinstance(spec, SentinelSpec):
            await self._read_facts(work, {spec.region})
        elif isinstance(spec, ClusterSpec):
            work.infrastructure = await self._infrastructure_for(work, {spec.region})
            await self._look_elsewhere(work, row)
        else:
            work.infrastructure = await self._infrastructure_for(work, None)

    async def _look_elsewhere(self, work: PendingWork, row: Row | None) -> None:
        """A cluster is in the fleet's database; what runs on it may be known to the others only."""
        if isinstance(row, tables.Cluster):
            for database in self._databases.all[1:]:
                async with database.reading() as session:
                    work.used_elsewhere |= {at.shard for at in await read_counts(session, [row.id])}


def _named(document: SpecDocument) -> NamedObject:
    return document.ref.kind, document.ref.name


def _must_be(ref: ObjectRef, kind: str) -> None:
    if ref.kind != kind:
        raise BadRequest(f"{ref.kind} {ref} is not of the kind {kind}")


def _outside(row: Row, within: ObjectScope) -> ObjectScope:
    return ObjectScope(within.project) if isinstance(row, tables.Environment) else within
