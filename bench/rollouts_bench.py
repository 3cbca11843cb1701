"""Rollouts with real gateways under load: how soon all gateways have switched back, and whether good versions pass.

    python bench/rollouts_bench.py                    prints one line per figure and fails when a bar is missed
    python bench/rollouts_bench.py --switches 50 --good 0

Two regions with one gateway each, 100 requests a second to each. A switch is `rollout undo` between two revisions that
are both kept; its time is from the command to the last request that a gateway sent to the other revision. A good
rollout is judged at 25 and 50 % without limits; it must be promoted, and no request may fail.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.testing.fleets import ENVIRONMENT, PROJECT, LocalFleet
from shoal.testing.load import RequestLoad, RequestOutcome
from shoal.testing.traffic import APP, HOST, demo_app, demo_fleet, eventually_in_traffic, gateway_address
from shoal.testing.waiting import eventually_blocking

RATE = 100.0
REGIONS = ("eu", "us")
SWITCHED_S = 2.0
LONGEST_S = 600.0  # of a rollout: comparing takes at least nine warm windows in each of two steps
_PATH = f"/projects/{PROJECT}/environments/{ENVIRONMENT}/apps/{APP}"
JUDGED = {"steps": [25, 50], "every": "10s", "interval": "5s", "keep": "30m"}
UNJUDGED = {"strategy": "canary", "steps": [{"weight": 50}], "judge": False, "keep": "30m"}


def version(tag: str, rollout: dict[str, Any], **env: str) -> dict[str, Any]:
    return demo_app(tag, 2, regions=REGIONS, rollout=rollout, env=env)


def newest(fleet: LocalFleet) -> dict[str, Any]:
    found: dict[str, Any] = fleet.api.get(f"{_PATH}/rollout")
    return found


def until(fleet: LocalFleet, number: int) -> dict[str, Any]:
    """The rollout with this number, once it has given everything to one of its revisions."""

    def look() -> dict[str, Any] | None:
        found = newest(fleet)
        return found if found["number"] == number and found["phase"] in ("keeping", "ended") else None

    return dict(eventually_blocking(look, timeout_s=LONGEST_S, every_s=0.05, what=f"the end of rollout {number}"))


def outcomes(loads: Sequence[RequestLoad]) -> list[RequestOutcome]:
    return [each for load in loads for each in load.outcomes()]


def switches(fleet: LocalFleet, loads: Sequence[RequestLoad], count: int) -> list[float]:
    """Seconds from each command to the last request to the revision that it leaves."""
    fleet.api.put(version("v2", UNJUDGED, CASE="switches"))
    number = until(fleet, newest(fleet)["number"])["number"]
    found: list[float] = []
    for at in range(count):
        left = "v2" if at % 2 == 0 else "v1"
        time.sleep(0.5)  # the pace of the load
        begun = time.monotonic()
        fleet.api.request("POST", f"{_PATH}/rollout/undo", {})
        number += 1
        until(fleet, number)
        time.sleep(0.5)
        late = [one.started - begun for one in outcomes(loads) if one.version == left and one.started > begun]
        found.append(max(late, default=0.0))
        print(f"  switch {at + 1} of {count}: {found[-1] * 1000:.0f} ms", file=sys.stderr, flush=True)
    return found


def good_ones(fleet: LocalFleet, count: int) -> int:
    """How many of so many good versions in a row were promoted."""
    promoted = 0
    for at in range(count):
        fleet.api.put(version("v2" if at % 2 else "v1", JUDGED, CASE=f"good {at}"))
        found = until(fleet, newest(fleet)["number"])
        promoted += found["phase"] == "keeping" or found["outcome"] == "promoted"
        ended = found["outcome"] or found["phase"]
        print(f"  good rollout {at + 1} of {count}: {ended} {found['reason']}", file=sys.stderr, flush=True)
    return promoted


def main(options: argparse.Namespace) -> int:
    short = False
    with tempfile.TemporaryDirectory(prefix="rollouts-bench-") as folder:
        with demo_fleet(Path(folder) / "fleet", {"eu-1": "eu", "us-1": "us"}) as fleet:
            eu, us = (gateway_address(fleet.api, region) for region in REGIONS)
            fleet.api.put(version("v1", UNJUDGED))
            eventually_in_traffic(lambda: fleet.api.app_status(APP)["state"] == "Ready", what="the app ready")
            with (
                RequestLoad(Path(folder) / "eu", eu, HOST, rate=RATE) as one,
                RequestLoad(Path(folder) / "us", us, HOST, rate=RATE) as two,
            ):
                loads = (one, two)
                if options.switches:
                    times = sorted(switches(fleet, loads, options.switches))
                    p99 = times[min(len(times) - 1, round(0.99 * len(times)))]
                    short |= p99 > SWITCHED_S
                    print(f"command to the last gateway switched, p99 of {len(times)}: {p99 * 1000:.0f} ms, p50 "
                          f"{times[len(times) // 2] * 1000:.0f} ms   needs {SWITCHED_S * 1000:.0f}")  # fmt: skip
                if options.good:
                    promoted = good_ones(fleet, options.good)
                    short |= promoted < options.good
                    print(f"good rollouts that were promoted: {promoted} of {options.good}   needs all")
                found = outcomes(loads)
                failed = [each for each in found if each.status != 200]
                short |= bool(failed)
                print(f"failed requests: {len(failed)} of {len(found)}   needs 0")
    return int(short)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--switches", type=int, default=30)
    parser.add_argument("--good", type=int, default=20)
    sys.exit(main(parser.parse_args()))
