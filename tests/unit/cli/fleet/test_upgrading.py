"""Upgrading agents in waves, against a control plane that the test plays."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.fleet.session import FleetSession
from shoal.cli.fleet.upgrade_plan import DEFAULT_WAVES, by_cluster, upgrade_of, waves_of
from shoal.cli.fleet.upgrading import AgentUpgrade, UpgradeDeps, WaveStopped
from shoal.cli.rest import CannotReach
from shoal.errors import ConfigError

OLD, NEW = "registry.example.com/shoal:1", "registry.example.com/shoal:2"


def an_agent(cluster: str, running: str = OLD, **fields: Any) -> dict[str, Any]:
    image = {"running": running, "error": "", "waiting": []}
    return {"cluster": cluster, "region": "eu", "shard": "default", "state": "Joined", "reason": "", "image": image} | (
        fields
    )


class Fleet:
    """Implements what the command needs of a session. ``turn`` plays one look at the agents."""

    def __init__(self, *agents: dict[str, Any], turn: Callable[[Fleet], None] = lambda fleet: None) -> None:
        self.agents = {each["cluster"]: each for each in agents}
        self.wanted: dict[str, str] = {}
        self.turn = turn
        self.said: list[str] = []
        self.now_s = 0.0
        self.rest = self

    def get(self, what: Any, *_: Any) -> Any:
        if isinstance(what, str):
            self.turn(self)
            return {"items": list(self.agents.values())}
        return {"apiVersion": "shoal.dev/v1", "kind": "Cluster", "metadata": {"name": what.name, "createdAt": "now"},
                "spec": {"region": "eu"}}  # fmt: skip

    def find(self, word: str, name: str) -> Any:
        return SimpleNamespace(name=name)

    def send(self, method: str, ref: Any, *, body: Any) -> None:
        assert method == "PUT" and "createdAt" not in body["metadata"] and body["spec"]["region"] == "eu"
        self.wanted[ref.name] = body["spec"]["agentImage"]

    def upgrade(self, *, deadline_s: float = 60.0) -> AgentUpgrade:
        def pause(seconds: float) -> None:
            self.now_s += seconds

        session: Any = self
        assert isinstance(FleetSession, type)
        deps = UpgradeDeps(session=session, pause=pause, now_s=lambda: self.now_s, say=self.said.append)
        return AgentUpgrade(deps, NEW, deadline_s=deadline_s)

    def obey(self) -> None:
        for name, image in self.wanted.items():
            self.agents[name]["image"]["running"] = image


def test_a_wave_begins_when_the_one_before_is_done() -> None:
    begun: list[list[str]] = []

    def turn(fleet: Fleet) -> None:
        if not begun or begun[-1] != sorted(fleet.wanted):
            begun.append(sorted(fleet.wanted))
        fleet.obey()

    names = [f"c{number}" for number in range(8)]
    fleet = Fleet(*(an_agent(name) for name in names), turn=turn)
    found = fleet.upgrade().run([], "1,50%,100%")
    assert begun == [[], names[:1], names[:4], names]
    assert {each.state for each in found} == {"done"}


def test_an_agent_that_does_not_come_back_stops_the_waves_and_the_command_goes_on_when_called_again() -> None:
    broken = True

    def turn(fleet: Fleet) -> None:
        fleet.obey()
        if broken and "c1" in fleet.wanted:
            fleet.agents["c1"] |= {"state": "Lost", "reason": "no heartbeat for 40 s"}

    fleet = Fleet(*(an_agent(f"c{number}") for number in range(4)), turn=turn)
    with pytest.raises(
        WaveStopped, match=r"wave 2 stopped after 60 s: c1: .*no heartbeat.*--image PREVIOUS --cluster c1"
    ):
        fleet.upgrade().run([], "1,2,100%")
    assert sorted(fleet.wanted) == ["c0", "c1"], "later waves are as they were"
    broken = False
    fleet.agents["c1"] |= {"state": "Joined", "reason": ""}
    assert {each.state for each in fleet.upgrade().run([], "1,2,100%")} == {"done"}
    assert fleet.wanted == dict.fromkeys(["c0", "c1", "c2", "c3"], NEW)


def test_a_control_plane_that_is_away_for_a_moment_stops_nothing() -> None:
    looks = 0

    def turn(fleet: Fleet) -> None:
        nonlocal looks
        looks += 1
        if looks in (2, 3):
            raise CannotReach("connection refused")
        fleet.obey()

    fleet = Fleet(an_agent("c0"), turn=turn)
    assert [each.state for each in fleet.upgrade().run([], "100%")] == ["done"]
    assert any("connection refused" in line for line in fleet.said)


def test_what_cannot_be_upgraded_is_skipped_with_the_reason_and_what_is_done_is_left_alone() -> None:
    fleet = Fleet(an_agent("bare", image=None), an_agent("new", NEW), an_agent("old"), turn=Fleet.obey)
    rows = fleet.upgrade().rows([], "100%")
    assert [(row["cluster"], row["wave"], row["state"]) for row in rows] == [
        ("bare", None, "skipped"), ("new", None, "done"), ("old", 1, "waiting"),
    ]  # fmt: skip
    assert fleet.wanted == {}
    fleet.upgrade().run(["old", "unknown"], "100%")
    assert fleet.wanted == {"old": NEW}
    assert any("unknown: skipped, no agent has joined" in line for line in fleet.said)


def test_a_cluster_is_done_when_all_its_agents_and_what_is_beside_them_run_the_image() -> None:
    one, other = an_agent("c", NEW), an_agent("c", NEW, shard="b")
    assert upgrade_of("c", [one, other], NEW).state == "done"
    other["image"]["waiting"] = ["shoal-edge"]
    assert upgrade_of("c", [one, other], NEW).reason == "rolling out: shoal-edge"
    other["image"]["error"] = "Deployment shoal-krane: ProgressDeadlineExceeded: timed out"
    assert upgrade_of("c", [one, other], NEW).state == "failed"
    assert upgrade_of("c", [an_agent("c"), other], NEW).state == "failed"
    assert list(by_cluster([an_agent("b"), an_agent("a")])) == ["a", "b"]


@given(st.integers(0, 40), st.lists(st.one_of(st.integers(1, 50).map(str), st.integers(1, 100).map(lambda n: f"{n}%")), min_size=1, max_size=5))  # fmt: skip
def test_waves_hold_every_cluster_once_and_in_order(count: int, parts: list[str]) -> None:
    clusters = [f"c{number}" for number in range(count)]
    try:
        waves = waves_of(clusters, ",".join(parts))
    except ConfigError as error:
        assert "at least as far" in str(error)
        return
    assert [name for wave in waves for name in wave] == clusters and all(waves)


def test_a_wave_that_is_no_number_is_refused() -> None:
    assert waves_of(["a", "b", "c", "d", "e"], DEFAULT_WAVES) == [["a"], ["b"], ["c", "d", "e"]]
    for text in ("", "half", "1,x", "101%", "-1"):
        with pytest.raises(ConfigError, match="numbers and percentages"):
            waves_of(["a"], text)
