"""Other images of real gateways in two regions, with requests flowing: a good one takes the place of the old one, bad
ones go back with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from shoal.testing.fleets import ENVIRONMENT, PROJECT, LocalFleet
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import HOST, demo_app, demo_fleet, eventually_in_traffic, gateway_address

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400), pytest.mark.xdist_group("rollouts")]

RATE = 40.0  # in each of two regions
REGIONS = ("eu", "us")
CLUSTERS = {"eu-1": "eu", "us-1": "us"}
BRIEF = {"steps": [{"weight": 50}, {"pause": "5s"}], "interval": "5s"}
_PATH = f"/projects/{PROJECT}/environments/{ENVIRONMENT}"
# A gateway that becomes ready and then fails most requests: it gives instances a millisecond to answer.
_HASTY = """
from shoal.sentinel.translate import actions

whole = actions.forward

def forward(*arguments, **options):
    made = whole(*arguments, **options)
    made.timeout.FromMilliseconds(1)
    return made

actions.forward = forward
from shoal.app.main import main
raise SystemExit(main())
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    folder = tmp_path_factory.mktemp("gateways")
    (script := folder / "hasty.py").write_text(_HASTY)
    path = {"PYTHONPATH": "{source}"}
    images = {
        "gateway-crashing": {"argv": ["{python}", "-c", "raise SystemExit(3)"]},
        "gateway-hasty": {"argv": ["{python}", str(script)], "args": ["sentinel", "start"], "env": path},
    }
    for cluster in CLUSTERS:
        (at := folder / "clusters" / cluster).mkdir(parents=True)
        (at / "images.yaml").write_bytes(orjson.dumps({"images": images}))
    with demo_fleet(folder, CLUSTERS) as fleet:
        for region in REGIONS:
            gateway_address(fleet.api, region)
        fleet.api.put(demo_app("v1", regions=REGIONS))
        yield fleet


@pytest.fixture
def loads(fleet: LocalFleet, tmp_path: Path) -> Iterator[list[RequestLoad]]:
    """Requests of many users: each has a connection of its own."""
    eu, us = (gateway_address(fleet.api, region) for region in REGIONS)
    with (
        RequestLoad(tmp_path / "eu", eu, HOST, rate=RATE, lasting=False) as one,
        RequestLoad(tmp_path / "us", us, HOST, rate=RATE, lasting=False) as two,
    ):
        yield [one, two]


def changed(fleet: LocalFleet, image: str, rollout: dict[str, Any]) -> int:
    """The environment asks for another image; returns the number of the rollout."""
    about = {"name": ENVIRONMENT, "project": PROJECT}
    spec = {"sentinel": {"image": image, "rollout": rollout}}
    fleet.api.apply({"apiVersion": "shoal.dev/v1", "kind": "Environment", "metadata": about, "spec": spec})
    return int(fleet.api.get(f"{_PATH}/rollout")["number"])


def ended(fleet: LocalFleet, number: int) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = fleet.api.get(f"{_PATH}/rollout")
        return found if found["number"] == number and found["phase"] == "ended" else None

    found = dict(
        eventually_in_traffic(look, what="the end of the rollout", timeout_s=300, explain=lambda: shown(fleet))
    )
    for each in found["decisions"]:
        print(each["at"], each["action"], each["reason"])
    return found


def shown(fleet: LocalFleet) -> str:
    found = fleet.api.get(f"{_PATH}/rollout")
    return f"{found['hold']} {found['regions']} {fleet.logs()[-3000:]}"


def images(fleet: LocalFleet) -> set[str]:
    items = fleet.api.get(f"{_PATH}/sentinels")["items"]
    return {one["spec"].get("image", "") for one in items}


def failed(loads: list[RequestLoad]) -> list[RequestOutcome]:
    known = [each for load in loads for each in load.outcomes()]
    assert len(known) > 200
    return [each for each in known if each.status != 200]


def test_a_good_image_takes_the_place_of_the_old_one_in_both_regions_and_no_request_fails(
    fleet: LocalFleet, loads: list[RequestLoad]
) -> None:
    found = ended(fleet, changed(fleet, "shoal/sentinel:good", BRIEF))
    assert (found["outcome"], len(found["waves"])) == ("promoted", 2), found["reason"]
    assert images(fleet) == {"shoal/sentinel:good"}
    assert failed(loads) == []


def test_an_image_that_crashes_goes_back_in_both_regions_and_no_request_fails(
    fleet: LocalFleet, loads: list[RequestLoad]
) -> None:
    before = images(fleet)
    found = ended(fleet, changed(fleet, "gateway-crashing", BRIEF))
    assert found["outcome"] == "rolledBack" and "instances fail in eu: " in found["reason"], found
    assert found["reason"].endswith("(restarted 2 times)"), found["reason"]
    assert images(fleet) == before
    assert failed(loads) == []


def test_an_image_whose_gateway_fails_requests_goes_back_with_what_it_failed(
    fleet: LocalFleet, loads: list[RequestLoad]
) -> None:
    before = images(fleet)
    found = ended(fleet, changed(fleet, "gateway-hasty", {**BRIEF, "steps": [{"weight": 50}, {"pause": "4m"}]}))
    assert found["outcome"] == "rolledBack", found
    assert "of" in found["reason"] and "requests to revision" in found["reason"], found["reason"]
    assert images(fleet) == before
    count = len(failed(loads))
    fleet.api.get(f"{_PATH}/rollout")
    eventually_in_traffic(lambda: len(loads[0].outcomes()) > 0, what="requests")
    assert len(failed(loads)) - count < 5, "nothing fails any more"
