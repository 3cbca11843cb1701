"""What each kind adds to an apply or a delete: checks against other objects, its own columns, and what follows.

``Fleet`` does what all kinds share (names, versions, diffs, audit). A handler never commits and never looks at roles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy import func, select

from shoal.base.ids import new_token, token_digest
from shoal.control.database import tables
from shoal.control.domain import apps, deployments, gateways, namespaces, readiness
from shoal.control.domain.adoption import faults_of_adoption
from shoal.control.domain.fields import Reader
from shoal.control.domain.fingerprints import FingerprintKey
from shoal.control.domain.gateway_rollouts import beginning as gateway_beginning
from shoal.control.domain.hosts import PREVIEW_HOST, preview_host_of
from shoal.control.domain.kinds.app import AppSpec
from shoal.control.domain.kinds.credentials import ApiKeySpec, SealedSpec
from shoal.control.domain.kinds.policy import PolicySpec
from shoal.control.domain.kinds.rollout import read_fields
from shoal.control.domain.kinds.route import RouteSpec, read_route
from shoal.control.domain.kinds.scopes import EnvironmentSpec
from shoal.control.domain.model import GROUP, ObjectRef, Sealed
from shoal.control.domain.objects import IN_ENVIRONMENT, TABLES, ObjectScope, Row, kind_of, ref_of
from shoal.control.domain.outbound_needs import credentials_in, faults_of_defaults
from shoal.control.domain.plan import cluster_name, recorded_template, secrets_of
from shoal.control.domain.registries import defaults_of, faults_of_registries, with_defaults
from shoal.control.domain.rollout_needs import faults_of_rollout
from shoal.control.domain.rollouts.contents import bad_revision, digest_of
from shoal.control.domain.specs import SpecDocument, read_app_spec
from shoal.control.domain.work import PendingWork
from shoal.errors import Conflict, FieldError, forbidden, not_found, required
from shoal.errors import invalid as invalid_field

MAX_NAMESPACE = 63
KEY_PREFIX = "shk_"
KEY_SHOWN = 12  # letters of a key by which people recognise it


@dataclass(frozen=True, slots=True)
class PreparedSecret:
    """The values of a secret, as they are stored."""

    sealed: Sealed
    key: FingerprintKey
    fingerprint: str


@dataclass(slots=True, kw_only=True)
class ApplyRequest:
    """One apply: the document, its project and environment, and the values prepared before the transaction."""

    doc: SpecDocument
    within: ObjectScope
    secret: PreparedSecret | None = None
    is_led_to: bool = False  # a route that leads to this app is applied together with it
    once: dict[str, Any] = field(default_factory=dict)  # goes into the answer and nowhere else


class KindHandler:
    """The kinds that need nothing of their own are just this."""

    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        """Faults that only other objects show."""
        return []

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        """Columns besides the common ones, for a new row (``row`` is None) or one that changes."""
        return {}

    async def stored(self, work: PendingWork, request: ApplyRequest) -> dict[str, Any]:
        """The spec as it is kept."""
        return request.doc.raw

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        """The row has its new values; ``before`` is the old spec, None for a new object."""

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        """Remove the row and what hangs on it; returns what else went."""
        await work.session.delete(row)
        await work.session.flush()
        return []


class ProjectHandler(KindHandler):
    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        inside = list(
            await work.session.scalars(select(tables.Environment).where(tables.Environment.project_id == row.id))
        )
        if inside and not cascade:
            raise _in_use(
                row,
                f"it has environments: {_some(each.name for each in inside)}; delete them, or delete with cascade",
            )
        gone: list[ObjectRef] = []
        for environment in inside:
            outer = ObjectScope(cast(tables.Project, row), environment)
            gone += await EnvironmentHandler().delete(work, environment, outer, cascade=True)
            gone.append(ObjectRef("Environment", environment.name, row.name))
        await work.session.delete(row)
        await work.session.flush()
        return gone


class EnvironmentHandler(KindHandler):
    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        faults = await self._namespace_faults(work, cast(EnvironmentSpec, request.doc.spec).namespace, row)
        defaults = Reader(request.doc.raw.get("rollout"), "spec.rollout", [])
        if defaults.names():
            faults += await faults_of_defaults(work, work.workspace_id, read_fields(defaults))
        return faults

    async def _namespace_faults(self, work: PendingWork, name: str, row: Row | None) -> list[FieldError]:
        if isinstance(row, tables.Environment):
            text = f"it is {row.namespace} and cannot be changed: make another environment, and move the apps there"
            return [forbidden("spec.namespace", text)] if name not in ("", row.namespace) else []
        if not name:
            return []
        same = await work.session.scalar(select(tables.Environment).where(tables.Environment.namespace == name))
        text = "another environment has this namespace: use one of its own for each"
        return [forbidden("spec.namespace", text)] if same is not None else []

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        if row is not None:
            return {}
        name = f"{request.within.project_name}-{request.doc.ref.name}"
        return {
            "project_id": request.within.project_id,
            "namespace": cast(EnvironmentSpec, request.doc.spec).namespace
            or cluster_name(name, new_id, most=MAX_NAMESPACE),
        }

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        if before is not None and before.get("gateway") != row.spec.get("gateway"):
            await readiness.settle_gateways(work, row.id)
        if before is not None:
            environment = cast(tables.Environment, row)
            await gateway_beginning.wanted_otherwise(work, environment, str(request.doc.ref), before)

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        assert isinstance(row, tables.Environment)
        inside = ObjectScope(within.project, row)
        content: list[Row] = []
        for kind in IN_ENVIRONMENT:
            table: Any = TABLES[kind]
            content += await work.session.scalars(select(table).where(table.environment_id == row.id))
        kept = [
            each for each in content if not (isinstance(each, tables.Sentinel) and gateways.MADE_BY in each.annotations)
        ]
        if kept and not cascade:
            names = _some(f"{kind_of(each)} {each.name}" for each in kept)
            raise _in_use(row, f"it is not empty: {names}; delete them, or delete with cascade")
        gone = [ref_of(each, inside) for each in content]
        for each in content:
            if isinstance(each, tables.App):
                await apps.delete_app(work, each)
        for kind in ("route", "policy"):
            for each in content:
                if kind_of(each).lower() == kind:
                    await work.unwant_everywhere(kind, each.id)
        await work.unwant_everywhere("keys", row.id)
        for sentinel in list(
            await work.session.scalars(select(tables.Sentinel).where(tables.Sentinel.environment_id == row.id))
        ):
            await gateways.remove(work, sentinel)
        await gateway_beginning.forget(work, row.id)
        for each in content:
            if not isinstance(each, tables.App | tables.Sentinel):
                await work.session.delete(each)
        await work.session.flush()
        await namespaces.remove(work, row)
        await work.session.delete(row)
        await work.session.flush()
        return gone


class _InEnvironment(KindHandler):
    """Kinds that live in an environment."""

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        if row is not None:
            return {}
        return {"project_id": request.within.project_id, "environment_id": request.within.environment_id}


class AppHandler(_InEnvironment):
    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        written = {"preview_host": preview_host_of(request.doc.raw)}
        if row is not None:
            return written
        none_yet = {"deployment_id": "", "live_deployment_id": "", "revision": 0, "template_hash": ""}
        return {**await super().columns(work, request, row, new_id), **none_yet, **written}

    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        spec = cast(AppSpec, request.doc.spec)
        faults = [
            not_found(f"spec.topology[{index}].region", region.region)
            for index, region in enumerate(spec.topology)
            if work.infrastructure.region_named(region.region) is None
        ]
        if spec.secrets:
            known = await _names(work, tables.Secret, request.within.environment_id)
            faults += [
                not_found(f"spec.secrets[{index}]", name)
                for index, name in enumerate(spec.secrets)
                if name not in known
            ]
        faults += await faults_of_registries(work, spec, request.within.environment)
        before = row.spec if isinstance(row, tables.App) else None
        faults += faults_of_adoption(work, spec, before, request.within.environment)
        if host := preview_host_of(request.doc.raw):
            faults += await self._preview_faults(work, host, row)
        if work.is_hurried:  # it goes back to what ran before, whatever a rollout would need
            return faults
        return faults or await faults_of_rollout(
            work,
            cast(tables.App | None, row),
            spec,
            request.doc.raw,
            request.within.environment,
            is_led_to=request.is_led_to,
        )

    async def _refuse_bad(self, work: PendingWork, request: ApplyRequest, row: tables.App) -> None:
        """A revision that a rollout took back is not applied again by accident."""
        template = recorded_template(with_defaults(cast(AppSpec, request.doc.spec), request.within.environment))
        bad = await bad_revision(work.session, row.id, await digest_of(work.session, template, row.environment_id))
        if bad is None:
            return
        if not work.is_forced:
            why = (
                f"revision {bad.revision} with the same contents was taken back: {bad.reason}; change what it runs, or"
                " apply it with --force"
            )
            raise Conflict.of("apps", GROUP, str(request.doc.ref), why)
        await work.session.delete(bad)

    async def _preview_faults(self, work: PendingWork, host: str, row: Row | None) -> list[FieldError]:
        """A gateway could send the requests of a host to one of both only."""
        routes = select(tables.Route.name).where(tables.Route.host == host)
        if taken := await work.session.scalar(routes):
            return [invalid_field(PREVIEW_HOST, host, f"is the host of route {taken}: choose one that no route has")]
        others = select(tables.App.name).where(
            tables.App.preview_host == host, tables.App.id != (row.id if row is not None else "")
        )
        if taken := await work.session.scalar(others):
            return [invalid_field(PREVIEW_HOST, host, f"is the preview host of app {taken}: choose another one")]
        return []

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        spec = cast(AppSpec, request.doc.spec)
        await self._refuse_bad(work, request, cast(tables.App, row))
        app = cast(tables.App, row)
        await apps.apply_app(work, app, request.within, spec, before, is_going_back=work.is_hurried)

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        assert isinstance(row, tables.App)
        routes = await gateways.routes_of_app(work.session, row)
        await apps.delete_app(work, row)
        for route in routes:  # they lead nowhere now, and the gateways must know
            await gateways.config_changed(work, "route", route)
        return []


class RouteHandler(_InEnvironment):
    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        spec = cast(RouteSpec, request.doc.spec)
        environment = request.within.environment_id
        faults: list[FieldError] = []
        taken = await work.session.scalar(
            select(func.count())
            .select_from(tables.Route)
            .where(tables.Route.host == spec.host, tables.Route.environment_id != environment)
        )
        if taken:
            faults.append(invalid_field("spec.host", spec.host, "is used by another environment"))
        if previewed := await work.session.scalar(select(tables.App.name).where(tables.App.preview_host == spec.host)):
            faults.append(invalid_field("spec.host", spec.host, f"is the preview host of app {previewed}"))
        same = await self._same_matches(work, request)
        if same:
            why = f"route {same} has the same host, path and headers; change one of them, or delete that route"
            faults.append(invalid_field("spec.path", spec.path, why))
        known = await _names(work, tables.App, environment)
        faults += [not_found("spec.backends", app) for app in spec.apps if app not in known]
        if spec.policies:
            policies = await _names(work, tables.Policy, environment)
            faults += [
                not_found(f"spec.policies[{index}]", name)
                for index, name in enumerate(spec.policies)
                if name not in policies
            ]
        if spec.tls and spec.tls not in await _names(work, tables.Secret, environment):
            faults.append(not_found("spec.tls.secret", spec.tls))
        return faults

    async def _same_matches(self, work: PendingWork, request: ApplyRequest) -> str:
        """The name of another route that takes the same requests: a gateway could send them to one of both only."""
        spec = cast(RouteSpec, request.doc.spec)
        others = await work.session.scalars(
            select(tables.Route)
            .where(
                tables.Route.host == spec.host,
                tables.Route.environment_id == request.within.environment_id,
                tables.Route.name != request.doc.ref.name,
            )
            .order_by(tables.Route.name)
        )
        for other in others:
            found = read_route(Reader(other.spec, "spec", []))
            if (found.path, frozenset(found.headers)) == (spec.path, frozenset(spec.headers)):
                return other.name
        return ""

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        return {**await super().columns(work, request, row, new_id), "host": cast(RouteSpec, request.doc.spec).host}

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        route = cast(tables.Route, row)
        await gateways.config_changed(work, "route", route)
        if before is None and await self._is_first(work, route):
            await readiness.settle_gateways(work, route.environment_id)

    async def _is_first(self, work: PendingWork, route: tables.Route) -> bool:
        """An environment gets its gateways with its first route."""
        here = tables.Route.environment_id == route.environment_id, tables.Route.id != route.id
        return await work.session.scalar(select(tables.Route.id).where(*here).limit(1)) is None

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        await work.unwant_everywhere("route", row.id)
        return await super().delete(work, row, within, cascade=cascade)


class PolicyHandler(_InEnvironment):
    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        named = cast(PolicySpec, request.doc.spec).routes
        known = await _names(work, tables.Route, request.within.environment_id) if named else set()
        return [not_found(f"spec.routes[{i}]", name) for i, name in enumerate(named) if name not in known]

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        await gateways.config_changed(work, "policy", cast(tables.Policy, row))

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        routes = await work.session.scalars(
            select(tables.Route).where(tables.Route.environment_id == within.environment_id)
        )
        users = [route.name for route in routes if row.name in (route.spec.get("policies") or ())]
        if users and not cascade:
            raise _in_use(row, f"routes name it: {_some(users)}; change them first, or delete with cascade")
        await work.unwant_everywhere("policy", row.id)
        return await super().delete(work, row, within, cascade=cascade)


class ApiKeyHandler(_InEnvironment):
    """The key is made here and shown once, in the answer to the apply that created it."""

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        spec = cast(ApiKeySpec, request.doc.spec)
        found = await super().columns(work, request, row, new_id)
        if row is None:
            found |= self.new_key(request.once)
        revoked = row.revoked_at if isinstance(row, tables.ApiKey) else 0
        return {**found, "expires_at": spec.expires_at, "revoked_at": 0 if spec.enabled else revoked or work.now}

    def new_key(self, once: dict[str, Any]) -> dict[str, str]:
        key = KEY_PREFIX + new_token()
        once["key"] = key
        return {"digest": token_digest(key), "prefix": key[:KEY_SHOWN]}

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        await gateways.keys_changed(work, request.within.environment_id, row.workspace_id)

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        gone = await super().delete(work, row, within, cascade=cascade)
        await gateways.keys_changed(work, within.environment_id, row.workspace_id)
        return gone


class _SealedHandler(_InEnvironment):
    """Values are sealed before the transaction; what is kept tells whether they changed, not what they are."""

    async def check(self, work: PendingWork, request: ApplyRequest, row: Row | None) -> list[FieldError]:
        spec = cast(SealedSpec, request.doc.spec)
        if spec.values is not None:
            return []
        if row is None:
            return [required("spec.values")]
        known = row.spec.get(spec.names_field) or []
        same = sorted(known) == sorted(spec.names)
        kind = request.doc.kind.name.lower()
        return [] if same else [required("spec.values", f"the {spec.names_field} differ from those of the {kind}")]

    async def stored(self, work: PendingWork, request: ApplyRequest) -> dict[str, Any]:
        spec = cast(SealedSpec, request.doc.spec)
        found: dict[str, Any] = {spec.names_field: list(spec.names)}
        if request.secret is not None:
            found["fingerprint"] = request.secret.fingerprint
        return found

    async def columns(self, work: PendingWork, request: ApplyRequest, row: Row | None, new_id: str) -> dict[str, Any]:
        found = await super().columns(work, request, row, new_id)
        if request.secret is None:
            return found
        revision = row.revision + 1 if isinstance(row, tables.Secret | tables.Credential) else 1
        return {
            **found,
            "revision": revision,
            "ciphertext": request.secret.sealed.ciphertext,
            "data_key": request.secret.sealed.data_key,
            "master_key": request.secret.sealed.master_key,
        }


class SecretHandler(_SealedHandler):
    """Agents get the values, so a change of them is sent."""

    async def written(self, work: PendingWork, request: ApplyRequest, row: Row, before: dict[str, Any] | None) -> None:
        if before is None or before.get("fingerprint") == row.spec.get("fingerprint"):
            return
        users = await self._users(work, cast(tables.Secret, row))
        await deployments.want_again(work, users)
        await self._routes_again(work, cast(tables.Secret, row))

    async def _users(self, work: PendingWork, secret: tables.Secret) -> list[tables.Deployment]:
        rows = await work.session.scalars(
            select(tables.Deployment)
            .where(
                tables.Deployment.environment_id == secret.environment_id,
                tables.Deployment.desired_state == "running",
            )
            .order_by(tables.Deployment.id)
        )
        return [row for row in rows if secret.name in secrets_of(row.template)]

    async def _routes_again(self, work: PendingWork, secret: tables.Secret) -> None:
        """Certificates are secrets of routes."""
        routes = await work.session.scalars(
            select(tables.Route).where(tables.Route.environment_id == secret.environment_id)
        )
        for route in list(routes):
            if (route.spec.get("tls") or {}).get("secret") == secret.name:
                await gateways.config_changed(work, "route", route)

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        inside = list(
            await work.session.scalars(
                select(tables.App).where(tables.App.environment_id == within.environment_id).order_by(tables.App.name)
            )
        )
        defaults = defaults_of(within.environment.spec) if within.environment is not None else ()
        users = [app.name for app in inside if row.name in _secrets_of(read_app_spec(app.spec), defaults)]
        if users and not cascade:
            raise _in_use(row, f"apps use it: {_some(users)}; change them first, or delete with cascade")
        return await super().delete(work, row, within, cascade=cascade)


class CredentialHandler(_SealedHandler):
    """The control plane itself uses the values, so no agent is told."""

    async def delete(self, work: PendingWork, row: Row, within: ObjectScope, *, cascade: bool) -> list[ObjectRef]:
        inside = await work.session.scalars(
            select(tables.App).where(tables.App.environment_id == within.environment_id).order_by(tables.App.name)
        )
        users = [f"app {app.name}" for app in inside if row.name in credentials_in(app.spec.get("rollout"))]
        environment = within.environment
        if environment is not None and row.name in credentials_in(environment.spec.get("rollout")):
            users.insert(0, f"environment {environment.name}")
        if users and not cascade:
            raise _in_use(row, f"rollouts use it: {_some(users)}; change them first, or delete with cascade")
        return await super().delete(work, row, within, cascade=cascade)


def _secrets_of(spec: AppSpec, defaults: tuple[str, ...]) -> tuple[str, ...]:
    return (*spec.secrets, *(spec.image_pull_secrets or defaults))


async def _names(work: PendingWork, table: Any, environment_id: str) -> set[str]:
    return set(await work.session.scalars(select(table.name).where(table.environment_id == environment_id)))


def _in_use(row: Row, why: str) -> Conflict:
    return Conflict.of(kind_of(row).lower(), GROUP, row.name, why)


def _some(names: Any, most: int = 5) -> str:
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
