"""Paths lead where they were declared to lead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.rest.routes import Routes, parameters_of


def routes(*paths: str) -> Routes[str]:
    made: Routes[str] = Routes()
    for path in paths:
        made.add("GET", path, path)
    return made


def at(made: Routes[str], path: str) -> tuple[str | None, list[str]]:
    methods, values = made.find(path)
    return methods.get("GET"), values


def test_a_literal_is_preferred_to_a_parameter_in_any_order() -> None:
    for paths in (("/checks/{check}", "/checks/results"), ("/checks/results", "/checks/{check}")):
        made = routes(*paths)
        assert at(made, "/checks/results") == ("/checks/results", [])
        assert at(made, "/checks/mine") == ("/checks/{check}", ["mine"])


def test_a_literal_that_leads_nowhere_is_taken_for_a_value() -> None:
    made = routes("/apps/status", "/apps/{name}/events")
    assert at(made, "/apps/status/events") == ("/apps/{name}/events", ["status"])


def test_there_is_nothing_beside_what_is_declared() -> None:
    made = routes("/api", "/api/{name}", "/")
    for path in ("/api/", "/api//", "/api/a/b", "/ap", "//api", "", "/api/a/"):
        assert at(made, path)[0] is None, path
    assert at(made, "/") == ("/", [])


def test_everything_below_an_open_path_is_its_own() -> None:
    made = routes("/ui/*", "/ui/{name}/edit")
    assert at(made, "/ui")[0] == at(made, "/ui/")[0] == at(made, "/ui/a/b.js")[0] == "/ui/*"
    assert at(made, "/ui/a/edit") == ("/ui/{name}/edit", ["a"])
    assert at(made, "/u")[0] is None


def test_all_methods_of_a_path_are_known() -> None:
    made = routes("/a/{b}")
    made.add("PUT", "/a/{c}", "put")
    assert set(made.find("/a/x")[0]) == {"GET", "PUT"}
    with pytest.raises(ValueError, match="declared twice"):
        made.add("PUT", "/a/{other}", "again")


segments = st.lists(st.sampled_from(["a", "b", "{x}", "{y}"]), min_size=1, max_size=4)


@given(st.lists(segments, min_size=1, max_size=6), st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4))
def test_a_path_leads_to_a_declaration_that_matches_it_whenever_there_is_one(
    declared: list[list[str]], asked: list[str]
) -> None:
    shapes = {tuple("{}" if part.startswith("{") else part for part in each): "/" + "/".join(each) for each in declared}
    found, values = at(routes(*shapes.values()), "/" + "/".join(asked))
    matching = {
        path
        for shape, path in shapes.items()
        if len(shape) == len(asked) and all(a in ("{}", b) for a, b in zip(shape, asked, strict=True))
    }
    assert found in matching if matching else found is None
    if found is not None:
        given = iter(values)
        parts = found.split("/")[1:]
        assert [next(given) if part.startswith("{") else part for part in parts] == asked
        assert len(parameters_of(found)) == len(values)
