"""The kinds of the command line."""

from __future__ import annotations

import pytest

from shoal.cli.fleet.kinds import KINDS, kind_and_name, kind_called, without_kind
from shoal.control.domain import specs


def test_the_kinds_are_those_of_the_control_plane_in_its_order() -> None:
    assert [(each.name, each.plural, each.scope) for each in KINDS] == [
        (each.name, each.plural, each.scope) for each in specs.KINDS.values()
    ]
    assert kind_called("ENVS").name == kind_called("environment").name == "Environment"


@pytest.mark.parametrize(
    ("kind", "name", "bare"),
    [
        ("app", "app/web", "web"),
        ("app", "apps/shop/live/web", "shop/live/web"),
        ("app", "shop/live/web", "shop/live/web"),
        ("app", "app/live/web", "app/live/web"),  # a project may be called so
        ("app", "live/web", "live/web"),
        ("region", "region/eu", "eu"),
        ("app", "route/web", "route/web"),
    ],
)
def test_the_kind_before_a_name_is_left_out_where_only_one_is_taken(kind: str, name: str, bare: str) -> None:
    assert without_kind(kind_called(kind), name) == bare


def test_kind_and_name_may_be_one_word() -> None:
    assert kind_and_name("app/shop/live/web", "") == ("app", "shop/live/web")
    assert kind_and_name("app", "web") == ("app", "web")
    assert kind_and_name("apps", "") == ("apps", "")
