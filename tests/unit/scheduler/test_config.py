"""Profiles as settings write them."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.scheduler.config import DEFAULT_SCHEDULER, WEIGHTS, Profile, parse_profile, profiles_of
from shoal.scheduler.model import FILTERS, SCORES


def test_a_profile_says_what_differs_from_the_default() -> None:
    profile = parse_profile("batch NodeResourcesFit=5 -ImageLocality percentage=30")
    assert profile.name == "batch"
    assert profile.weight("NodeResourcesFit") == 5 and profile.weight("ImageLocality") == 0
    assert profile.weight("NodeAffinity") == WEIGHTS["NodeAffinity"]
    assert profile.percentage_of_nodes_to_score == 30
    assert parse_profile("plain").weights == Profile().weights


def test_all_plugins_can_be_turned_off_and_some_on_again() -> None:
    profile = parse_profile("bare -* NodeResourcesFit NodeAffinity=4")
    assert profile.filters("NodeResourcesFit") and not profile.filters("TaintToleration")
    assert profile.weight("NodeAffinity") == 4 and profile.disabled == {*FILTERS, *SCORES} - {
        "NodeResourcesFit", "NodeAffinity",
    }  # fmt: skip


def test_the_default_scheduler_stays_unless_it_is_given() -> None:
    assert [each.name for each in profiles_of(["batch"])] == [DEFAULT_SCHEDULER, "batch"]
    (only,) = profiles_of([f"{DEFAULT_SCHEDULER} -ImageLocality"])
    assert only.disabled == {"ImageLocality"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is no name of a scheduler"),
        ("Batch", "'Batch' is no name"),
        ("batch NodeResourceFit=5", "'NodeResourceFit=5' names no plugin; did you mean NodeResourcesFit?"),
        ("batch -Nothing", "'-Nothing' names no plugin"),
        ("batch NodeAffinity=much", "'NodeAffinity=much' has no whole number"),
        ("batch NodePorts=2", "'NodePorts=2' names no plugin"),
        ("batch percentage=200", "percentage_of_nodes_to_score must be 0 to 100"),
    ],
)
def test_mistakes_are_named_with_the_fix(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_profile(text)
    assert problem in str(caught.value)


def test_a_scheduler_name_is_given_once() -> None:
    with pytest.raises(ConfigError, match="'batch' more than once"):
        profiles_of(["batch", "batch -ImageLocality"])
