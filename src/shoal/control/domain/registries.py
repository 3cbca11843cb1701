"""Credentials of image registries: Secrets that apps and environments name in ``imagePullSecrets``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import select

from shoal.control.database import tables
from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.app import AppSpec
from shoal.control.domain.kinds.scopes import read_environment
from shoal.control.domain.work import PendingWork
from shoal.errors import FieldError, forbidden, invalid, not_found

VARIABLES = frozenset({"SERVER", "USERNAME", "PASSWORD"})


def with_defaults(spec: AppSpec, environment: tables.Environment | None) -> AppSpec:
    """An app that names no credentials has those of its environment."""
    if spec.image_pull_secrets or environment is None:
        return spec
    return replace(spec, image_pull_secrets=defaults_of(environment.spec))


def defaults_of(environment_spec: Mapping[str, Any]) -> tuple[str, ...]:
    return read_environment(Reader(environment_spec, "spec", [])).image_pull_secrets


async def faults_of_registries(
    work: PendingWork, spec: AppSpec, environment: tables.Environment | None
) -> list[FieldError]:
    """Every Secret that is named must be there and have the three variables."""
    names = with_defaults(spec, environment).image_pull_secrets
    if not names or environment is None:
        return []
    found = await work.session.execute(
        select(tables.Secret.name, tables.Secret.spec).where(
            tables.Secret.environment_id == environment.id, tables.Secret.name.in_(names)
        )
    )
    known = {row.name: set(row.spec.get("variables") or ()) for row in found}
    faults: list[FieldError] = []
    for at, name in enumerate(names):
        field = f"spec.imagePullSecrets[{at}]"
        if name not in known:
            faults.append(not_found(field, name) if spec.image_pull_secrets else forbidden(field, _missing(name)))
        elif missing := sorted(VARIABLES - known[name]):
            faults.append(invalid(field, name, f"is no credential of a registry: it lacks {', '.join(missing)}"))
    return faults


def _missing(name: str) -> str:
    return f"the environment names Secret {name!r} in its spec.imagePullSecrets, and it is not there: apply it first"
