"""What checks and notifications of a rollout need of their workspace and environment: allowed hosts and credentials."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.domain.kinds.rollout import RolloutFields
from shoal.control.domain.outbound import OutboundRules
from shoal.control.domain.tenants import TenantPolicy
from shoal.control.domain.work import PendingWork
from shoal.control.rollout.strategy import Strategy
from shoal.errors import FieldError, forbidden, not_found

FIELD = "spec.rollout"


async def faults_outside(
    work: PendingWork, workspace_id: str, environment_id: str, strategy: Strategy
) -> list[FieldError]:
    """Hosts that the workspace may not call, and credentials that the environment does not have."""
    if not strategy.checks and not strategy.notify:
        return []
    rules = await _rules(work, workspace_id)
    credentials = await _names(work, tables.Credential, environment_id)
    secrets = await _names(work, tables.Secret, environment_id)
    return [
        *host_faults(strategy, rules),
        *(
            _credential_fault(f"{at}.secret", secret, secrets)
            for at, _, secret in _calls(strategy)
            if secret and secret not in credentials
        ),
    ]


async def faults_of_defaults(work: PendingWork, workspace_id: str, fields: RolloutFields) -> list[FieldError]:
    """Of an environment, whose credentials are made after it: only hosts are looked at."""
    strategy = Strategy(checks=fields.checks or (), notify=fields.notify or ())
    return host_faults(strategy, await _rules(work, workspace_id)) if strategy.checks or strategy.notify else []


def host_faults(strategy: Strategy, rules: OutboundRules) -> list[FieldError]:
    found = ((at, rules.url_fault(url)) for at, url, _ in _calls(strategy))
    return [forbidden(f"{at}.url", why) for at, why in found if why]


def credentials_in(rollout: Any) -> set[str]:
    """The names of credentials that ``spec.rollout`` of an app or an environment uses, as it was applied."""
    if not isinstance(rollout, Mapping):
        return set()
    listed = (*(rollout.get("checks") or ()), *(rollout.get("notify") or ()))
    return {str(each["secret"]) for each in listed if each.get("secret")}


def _calls(strategy: Strategy) -> list[tuple[str, str, str]]:
    """Field, URL and name of the credential of each."""
    found = [
        (f"{FIELD}.checks[{index}]", str(each.settings["url"]), str(each.settings.get("secret", "")))
        for index, each in enumerate(strategy.checks)
        if "url" in each.settings
    ]
    return [
        *found,
        *((f"{FIELD}.notify[{index}]", each.url, each.secret) for index, each in enumerate(strategy.notify)),
    ]


def _credential_fault(field: str, name: str, secrets: Collection[str]) -> FieldError:
    if name not in secrets:
        return not_found(field, name)
    return forbidden(
        field,
        f"{name!r} is a Secret, whose values go to clusters; create a Credential of the name with `shoal create "
        f"credential {name}`",
    )


async def _rules(work: PendingWork, workspace_id: str) -> OutboundRules:
    return OutboundRules.of(TenantPolicy.of(await work.session.get(tables.Workspace, workspace_id)).outbound)


async def _names(work: PendingWork, table: Any, environment_id: str) -> set[str]:
    return set(await work.session.scalars(select(table.name).where(table.environment_id == environment_id)))
