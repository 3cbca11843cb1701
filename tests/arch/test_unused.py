"""Nothing of ours is there for tests alone: a public name is used by a component, or it goes, or stands in testing."""

from __future__ import annotations

import ast
import importlib
import importlib.util

from arch_source import ROOT, nodes, unused_names

_VERSIONS = "shoal.control.database.migrations.versions"
# Names that something outside the source calls, each with what it is.
CALLED_FROM_OUTSIDE = {
    f"{_VERSIONS}.r0001_tables.down_revision": "alembic",
    f"{_VERSIONS}.r0001_tables.upgrade": "alembic",
    f"{_VERSIONS}.r0002_gateways.down_revision": "alembic",
    f"{_VERSIONS}.r0002_gateways.upgrade": "alembic",
    f"{_VERSIONS}.r0006_control_keys.down_revision": "alembic",
    f"{_VERSIONS}.r0006_control_keys.upgrade": "alembic",
    f"{_VERSIONS}.r0007_tenants.down_revision": "alembic",
    f"{_VERSIONS}.r0007_tenants.upgrade": "alembic",
    f"{_VERSIONS}.r0005_correlation.down_revision": "alembic",
    f"{_VERSIONS}.r0005_correlation.upgrade": "alembic",
    f"{_VERSIONS}.r0003_exchanges.down_revision": "alembic",
    f"{_VERSIONS}.r0003_exchanges.upgrade": "alembic",
    f"{_VERSIONS}.r0010_route_extras.down_revision": "alembic",
    f"{_VERSIONS}.r0010_route_extras.upgrade": "alembic",
    f"{_VERSIONS}.r0008_rollouts.down_revision": "alembic",
    f"{_VERSIONS}.r0008_rollouts.upgrade": "alembic",
    f"{_VERSIONS}.r0009_traffic.down_revision": "alembic",
    f"{_VERSIONS}.r0009_traffic.upgrade": "alembic",
    f"{_VERSIONS}.r0011_credentials.down_revision": "alembic",
    f"{_VERSIONS}.r0011_credentials.upgrade": "alembic",
    f"{_VERSIONS}.r0012_compatibility.down_revision": "alembic",
    f"{_VERSIONS}.r0012_compatibility.upgrade": "alembic",
    f"{_VERSIONS}.r0016_check_jobs.down_revision": "alembic",
    f"{_VERSIONS}.r0016_check_jobs.upgrade": "alembic",
    f"{_VERSIONS}.r0017_sessions.down_revision": "alembic",
    f"{_VERSIONS}.r0017_sessions.upgrade": "alembic",
    f"{_VERSIONS}.r0018_gateway_rollouts.down_revision": "alembic",
    f"{_VERSIONS}.r0018_gateway_rollouts.upgrade": "alembic",
    "shoal.app.pod_forks.MODULES": "the fork server of pods, which is told this module",
    "shoal.app.pod_forks.PACKAGES": "the fork server of pods, which is told this module",
    "shoal.app.up_steps.apply_samples": "the fork server of `shoal up`, which is told its name",
    "shoal.app.up_steps.join_navigator": "the fork server of `shoal up`, which is told its name",
    "shoal.node.runtime.sandbox.helper.boot.main": "the process of the helper of sandboxes",
    "shoal.base.clock.FakeClock": "stands beside the clock that it replaces; CONTRIBUTING gives it to all tests",
}


def test_every_public_name_is_used_by_more_than_tests() -> None:
    found = set(unused_names())
    assert not found - set(CALLED_FROM_OUTSIDE), "wire the name, move it to shoal.testing, or delete it"
    assert not set(CALLED_FROM_OUTSIDE) - found, "these are used by now, or gone: take them off the list"


def test_benchmarks_and_scripts_import_names_that_exist() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for folder in ("bench", "scripts")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in nodes(path, ast.ImportFrom)
        if (node.module or "").split(".")[0] == "shoal"
        for alias in node.names
        if not defines(str(node.module), alias.name)
    ]
    assert not missing


def defines(module: str, name: str) -> bool:
    """Whether a module has a name, or a package a module."""
    return hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}") is not None
