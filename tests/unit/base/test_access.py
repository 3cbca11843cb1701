"""What the bearer of a token may read, as text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.access import EVERYTHING, NOTHING, Access, AccessScope, matches
from shoal.errors import ConfigError

NAMES = st.text("ab-*?.0", min_size=1, max_size=5)
VALUES = st.lists(NAMES, max_size=3, unique=True).map(tuple)


def test_a_scope_names_clusters_namespaces_and_workspaces() -> None:
    scope = AccessScope.parse("cluster=eu-1, cluster=eu-2,namespace=team-*")
    assert scope == AccessScope(clusters=("eu-1", "eu-2"), namespaces=("team-*",))
    assert str(scope) == "cluster=eu-1,cluster=eu-2,namespace=team-*"
    assert not scope.is_everything and not scope.is_of_whole_clusters
    assert AccessScope.parse("cluster=eu-*").is_of_whole_clusters
    assert matches(scope.namespaces, "team-a") and not matches(scope.namespaces, "a-team-a")


@given(st.lists(st.builds(AccessScope, VALUES, VALUES, VALUES), max_size=4, unique=True))
def test_an_access_is_the_same_after_a_journey_as_text(scopes: list[AccessScope]) -> None:
    access = Access(tuple(scopes))
    assert Access.parse(access.texts) == access


def test_without_scopes_nothing_is_allowed_and_a_star_alone_is_everything() -> None:
    assert Access.parse(()) == NOTHING and not NOTHING.is_everything and not NOTHING.of_cluster("eu-1")
    assert Access.parse(["*"]) == EVERYTHING == Access.parse(["cluster=a", "*", "*"][1:])
    assert Access.parse(["cluster=a", "*"]).is_everything
    assert Access.parse(["cluster=a*", "cluster=b"]).of_cluster("ab") == (AccessScope(clusters=("a*",)),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be KEY=VALUE"),
        ("eu-1", "must be KEY=VALUE"),
        ("region=eu", "cluster, namespace, workspace"),
        ("cluster=", "the value of cluster"),
        ("cluster=a,", "must be KEY=VALUE"),
        ("namespace=a b", "the value of namespace"),
        ("namespace=[a-z]", "the value of namespace"),
        ("cluster=" + "a" * 300, "the value of cluster"),
        (",".join(f"cluster=c{number}" for number in range(65)), "at most 64"),
    ],
)
def test_a_wrong_scope_is_refused_with_what_to_write(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        AccessScope.parse(text)


def test_there_is_a_limit_for_scopes() -> None:
    with pytest.raises(ConfigError, match="at most 64"):
        Access.parse(f"cluster=c{number}" for number in range(65))
