"""Which namespaces are watched, and the objects of several watches together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import Forbidden
from shoal.kube.objects import Obj
from shoal.navigator.edge.config import NamespaceConfig
from shoal.navigator.edge.kind_objects import KindObjects
from shoal.navigator.edge.scopes import WatchScope, scopes_of, watched_namespaces
from shoal.navigator.model import KINDS
from shoal.reconcile.cache import Change, ChangeType
from shoal.reconcile.keys import ObjectKey

EXISTING = ("team-a", "team-b", "other")
PLACES = ("", "a", "b", "c")


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), None),
        ((), ("other",), None),
        (("a", "b"), (), {"a", "b"}),
        (("a", "b"), ("b*",), {"a"}),
        (("team-*",), (), {"team-a", "team-b"}),
        (("team-*", "later"), ("team-b",), {"team-a", "later"}),
        (("none-*",), (), set()),
    ],
)
def test_names_are_watched_one_by_one_and_patterns_choose_among_those_that_exist(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: set[str] | None
) -> None:
    config = NamespaceConfig(include=include, exclude=exclude)
    assert watched_namespaces(config, EXISTING) == expected


def test_a_pattern_of_many_is_watched_with_the_whole_cluster_but_names_never_are() -> None:
    assert watched_namespaces(NamespaceConfig(include=("team-*",), one_by_one=1), EXISTING) is None
    assert watched_namespaces(NamespaceConfig(include=("a", "b"), one_by_one=1), EXISTING) == {"a", "b"}


def test_kinds_without_a_namespace_have_one_watch() -> None:
    config = NamespaceConfig(include=("a", "b"))
    assert scopes_of(KINDS["nodes"], config, frozenset({"a", "b"})) == {WatchScope("", config)}
    assert scopes_of(KINDS["pods"], config, frozenset({"a", "b"})) == {WatchScope("a"), WatchScope("b")}


def an_object(namespace: str, name: str, version: int) -> Obj:
    return {"metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}",
                         "resourceVersion": str(version)}}  # fmt: skip


class Mirror:
    """What a reader of the changes knows."""

    def __init__(self) -> None:
        self.known: dict[ObjectKey, Obj] = {}

    def __call__(self, change: Change) -> None:
        if change.type is ChangeType.DELETED:
            del self.known[change.key]  # it was told of it before
        else:
            self.known[change.key] = change.object


@given(
    steps=st.lists(
        st.tuples(st.sets(st.sampled_from(PLACES)), st.sets(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")))),
        max_size=12,
    )
)
def test_a_reader_sees_what_all_watches_have_read_whatever_the_order_of_watches(
    steps: list[tuple[set[str], set[tuple[str, str]]]],
) -> None:
    kind, mirror = KindObjects(), Mirror()
    kind.add_handler(mirror)
    for version, (places, objects) in enumerate(steps, 1):
        wanted = {WatchScope(place) for place in places}
        before = dict(mirror.known)
        for scope in wanted - kind.scopes.keys():
            kind.add(scope)

        def still(key: ObjectKey, wanted: set[WatchScope] = wanted) -> bool:
            return any(scope.covers(key) for scope in wanted)

        for scope in kind.scopes.keys() - wanted:
            kind.drop(scope, still)
        assert set(mirror.known) == {key for key in before if still(key)}, "objects that stay wanted disappeared"
        for scope, held in kind.scopes.items():
            read = [an_object(*each, version) for each in sorted(objects) if scope.namespace in ("", each[0])]
            held.cache.replace(read, str(version))
            held.answered(None)
            kind.settle()
        assert set(mirror.known) == {ObjectKey(*each) for each in objects if still(ObjectKey(*each))}
        assert set(mirror.known) == kind.keys()


def test_a_refused_namespace_does_not_hold_up_the_others() -> None:
    kind = KindObjects()
    first, second = kind.add(WatchScope("a")), kind.add(WatchScope("b"))
    second.answered(Forbidden("no"))
    kind.settle()
    assert not kind.synced.is_set()
    first.cache.replace((), "1")
    first.answered(None)
    kind.settle()
    assert kind.synced.is_set() and kind.state() == ("forbidden", "namespace b: no")
