"""Nothing of ours is there for tests alone: a public name is used by a component, or it goes, or stands in testing."""

from __future__ import annotations

from arch_source import unused_names

_VERSIONS = "shoal.control.database.migrations.versions"
# Names that something outside the source calls, each with what it is.
CALLED_FROM_OUTSIDE = {
    f"{_VERSIONS}.r0001_tables.down_revision": "alembic",
    f"{_VERSIONS}.r0001_tables.upgrade": "alembic",
    f"{_VERSIONS}.r0002_gateways.down_revision": "alembic",
    f"{_VERSIONS}.r0002_gateways.upgrade": "alembic",
    "shoal.control.database.tables.Rollout": "a table of the database; being defined is its use",
    "shoal.node.runtime.process.shim.main.main": "the shim's own process",
    "shoal.base.clock.FakeClock": "stands beside the clock that it replaces; CONTRIBUTING gives it to all tests",
}
# Names that only tests use so far. This list only gets shorter: wire a name, move it to shoal.testing, or delete it.
LEFT: set[str] = set()


def test_every_public_name_is_used_by_more_than_tests() -> None:
    found = set(unused_names())
    assert not found - LEFT - set(CALLED_FROM_OUTSIDE)
    assert not (LEFT | set(CALLED_FROM_OUTSIDE)) - found, "these are used by now, or gone: take them off the list"
