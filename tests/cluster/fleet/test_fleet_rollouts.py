"""A canary over two regions with real gateways, judged by what they count: a bad revision goes back, a good one stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.cli.rest import CannotReach, RequestRefused
from shoal.testing.fleets import ENVIRONMENT, PROJECT, LocalFleet
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import APP, HOST, demo_app, demo_fleet, eventually_in_traffic, gateway_address

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("rollouts")]

RATE = 100.0  # in each of two regions
INTERVAL_S = 10.0
REGIONS = ("eu", "us")
CLUSTERS = {"eu-1": "eu", "us-1": "us"}
ROLLOUT = {"steps": [5, 25, 50], "every": "20s", "interval": f"{INTERVAL_S:g}s", "keep": "1m"}
_PATH = f"/projects/{PROJECT}/environments/{ENVIRONMENT}/apps/{APP}"


def version(tag: str, **spec: Any) -> dict[str, Any]:
    return demo_app(tag, 2, regions=REGIONS, **{"rollout": ROLLOUT, **spec})


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    with demo_fleet(tmp_path_factory.mktemp("rollouts"), CLUSTERS) as fleet:
        for region in REGIONS:
            gateway_address(fleet.api, region)
        fleet.api.put(version("v1"))
        yield fleet


@pytest.fixture
def loads(fleet: LocalFleet, tmp_path: Path) -> Iterator[list[RequestLoad]]:
    eu, us = (gateway_address(fleet.api, region) for region in REGIONS)
    with (
        RequestLoad(tmp_path / "eu", eu, HOST, rate=RATE) as one,
        RequestLoad(tmp_path / "us", us, HOST, rate=RATE) as two,
    ):
        yield [one, two]


def rollout(fleet: LocalFleet) -> dict[str, Any]:
    found: dict[str, Any] = fleet.api.get(f"{_PATH}/rollout")
    return found


def until(fleet: LocalFleet, *, revision: int, what: str, **wanted: Any) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = rollout(fleet)
        is_it = found["revision"] == revision and all(found[name] == value for name, value in wanted.items())
        return found if is_it else None

    return dict(eventually_in_traffic(look, what=what))


def outcomes(loads: list[RequestLoad]) -> list[RequestOutcome]:
    return [each for load in loads for each in load.outcomes()]


@pytest.mark.parametrize(
    ("env", "abort"),
    [
        pytest.param({"FAIL_PERCENT": "5"}, {"errors": "1%"}, marks=pytest.mark.chaos),
        ({"FAIL_PERCENT": "5", "CASE": "no rule"}, None),
        ({"DELAY_MS": "300"}, {"p99": "250ms"}),
        pytest.param({"DELAY_MS": "300", "CASE": "no rule"}, None, marks=pytest.mark.chaos),
    ],
    ids=["errors", "errors without a rule", "slow", "slow without a rule"],
)
def test_a_bad_revision_goes_back_by_itself(
    fleet: LocalFleet, loads: list[RequestLoad], env: dict[str, str], abort: dict[str, str] | None
) -> None:
    spec = {**ROLLOUT, **({"abort": abort} if abort else {})}
    applied = fleet.api.put(version("v2", env=env, rollout=spec))
    found = until(fleet, revision=applied["object"]["status"]["revision"], what="back", outcome="rolledBack")
    print(found["reason"], [(each["at"], each["action"], each["reason"]) for each in found["decisions"]])
    known = outcomes(loads)
    failed = [each for each in known if each.status != 200]
    assert len(failed) < 0.01 * len(known)
    assert [each["action"] for each in found["decisions"]][-2:] == ["rollback", "end"]


def test_a_control_plane_killed_at_every_step_repeats_and_skips_none(
    fleet: LocalFleet, loads: list[RequestLoad]
) -> None:
    steps: list[dict[str, Any]] = [
        {"weight": 25}, {"pause": "2s"}, {"header": {"name": "x-canary", "value": "1"}}, {"pause": "2s"},
        {"weight": 50}, {"pause": "2s"},
    ]  # fmt: skip
    spec = {"strategy": "canary", "steps": steps, "judge": False, "keep": "5s"}
    applied = fleet.api.put(version("v2", env={"CASE": "killed"}, rollout=spec))
    revision = applied["object"]["status"]["revision"]
    killed: set[tuple[int, str]] = set()

    def look() -> dict[str, Any] | None:
        try:
            found = rollout(fleet)
        except (CannotReach, RequestRefused):
            return None
        at = (found["step"], found["phase"])
        if found["phase"] != "ended" and at not in killed:
            killed.add(at)
            fleet.control.kill()
            fleet.control.start()
        return found if found["phase"] == "ended" else None

    found = dict(eventually_in_traffic(look, what="the rollout's end"))
    assert (found["revision"], found["outcome"]) == (revision, "promoted"), found["reason"]
    made = [(each["action"], each["step"]) for each in found["decisions"]]
    taken = [("step", at) for at in range(1, len(steps) + 1)]
    assert made == [("start", 0), *taken, ("promote", len(steps)), ("end", len(steps))]
    pauses = {(at, "running") for at, step in enumerate(steps) if "pause" in step}
    assert pauses <= killed and (len(steps), "keeping") in killed
    assert not [each for each in outcomes(loads) if each.status != 200], "weights stay while it is away"


def test_a_check_that_runs_as_a_job_takes_the_rollout_back_with_its_last_lines(fleet: LocalFleet) -> None:
    command = ["/bin/sh", "-c", "echo $SHOAL_CHECK of $SHOAL_APP $SHOAL_REVISION: 2 of 9 failed; exit 3"]
    check = {"name": "smoke", "kind": "job", "image": "shoal/demo-app:v1", "command": command, "region": "us"}
    steps = [{"weight": 25}, {"analysis": "1s"}]
    spec = {"strategy": "canary", "steps": steps, "judge": False, "checks": [check]}
    applied = fleet.api.put(version("v2", env={"CASE": "job"}, rollout=spec))
    revision = applied["object"]["status"]["revision"]
    found = until(fleet, revision=revision, what="back", outcome="rolledBack")
    said = f"smoke of {APP} {revision}: 2 of 9 failed"
    assert found["reason"] == f"check smoke failed: the job in us ended with exit code 3: {said}"
