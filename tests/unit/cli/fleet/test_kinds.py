"""The kinds of the command line."""

from __future__ import annotations

from shoal.cli.fleet.kinds import KINDS, kind_called
from shoal.control.domain import specs


def test_the_kinds_are_those_of_the_control_plane_in_its_order() -> None:
    assert [(each.name, each.plural, each.scope) for each in KINDS] == [
        (each.name, each.plural, each.scope) for each in specs.KINDS.values()
    ]
    assert kind_called("ENVS").name == kind_called("environment").name == "Environment"
