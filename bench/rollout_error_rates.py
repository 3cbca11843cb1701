"""False alarms and misses of the analysis of rollouts, over simulated rollouts.

    PYTHONPATH=src python bench/rollout_error_rates.py [--rollouts N] [--seed TEXT] [--all] [--markdown] [SETTING ...]

Good candidates go through steps of 5, 25 and 50 % of the requests, one minute each; a rollout that analysis fails is a
false alarm. Bad ones stay at one weight for the time that a setting names; a rollout that has not failed by then is a
miss. Both revisions are looked at every 5 s, in two regions; instances of the candidate are cold for the first 10 s of
a step. The process fails when more are false alarms, or misses, than the bar of a setting: 1 % and 5 %, or a larger one
where failures are hard to tell from chance. Without ``--all`` or names, only the settings that matter most are
simulated.

Latency is drawn from pools of windows made beforehand; failures are drawn anew. A clump is a run of consecutive
requests of one revision in one region that all fail, and goes on in the next window. A stall stops one instance for up
to two seconds: its requests of that time take 300 ms longer, and one in four fails. The candidate has one instance.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from bisect import bisect_left
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import erf, exp, log, sqrt
from typing import Any

from shoal.control.rollout.analysis import Rules, Window, look
from shoal.control.rollout.measures import Counts
from shoal.control.rollout.samples import BOUNDS_MS
from shoal.control.rollout.sequential import ALPHA
from shoal.control.rollout.strategy import AbortSpec, LatencyLimit

WINDOW_S = 5
STEP_WINDOWS = 12
WEIGHTS = (5, 25, 50)
MISSES = 0.05
BATCH = 250
COLD_MS = 15_000  # until the window in which instances become warm has ended
LIMITS = AbortSpec(errors=0.01, latency=(LatencyLimit(quantile=0.99, ms=300.0),))
COMPARED = AbortSpec()


@dataclass(frozen=True, kw_only=True)
class Revision:
    failing: float = 0.001  # share of requests
    median_ms: float = 40.0
    clump: float = 1.0  # requests in a row that fail together, on average
    slower: float = 1.0  # times
    added_ms: float = 0.0
    only: str = ""  # the region with these numbers; the other has the defaults


@dataclass(frozen=True, kw_only=True)
class Setting:
    name: str
    abort: AbortSpec = COMPARED
    candidate: Revision = Revision()
    stable: Revision = Revision()
    per_s: float = 200.0
    shares: tuple[float, float] = (0.5, 0.5)  # of the requests, by region
    shared_bursts: float = 0.0  # chance that a window has a fault of a dependency: a fifth fail, three times as slow
    tide: float = 0.0  # load swings by so much, and latency with it
    stalls: float = 0.0  # chance that an instance stalls in a window
    instances: int = 1  # of stable, in each region
    weight: int = 0  # of a bad candidate
    windows: int = STEP_WINDOWS
    until_enough: bool = False  # a bad candidate is missed when a step may pass before it is noticed
    bar: float = 0.0  # the largest share that is wrong; 0: ``ALPHA`` of good candidates, ``MISSES`` of bad ones
    is_rare: bool = False  # only with --all


CLUMPS = Revision(failing=0.003, clump=8.0)
FAILING = Revision(failing=0.05)
HALF_SECOND = Revision(median_ms=500.0)
GOOD = (
    Setting(name="steady, against stable", is_rare=True),
    Setting(name="clumps of 8 and shared bursts, against stable", candidate=CLUMPS, stable=CLUMPS, shared_bursts=0.02),
    Setting(name="clumps of 8 and shared bursts, limits", abort=LIMITS, candidate=CLUMPS, stable=CLUMPS,
            shared_bursts=0.01),
    Setting(name="load swings by 60 %, regions 10 : 1, bursts", shares=(10 / 11, 1 / 11), tide=0.6, shared_bursts=0.05),
    Setting(name="stalls, 1 instance beside 3, 8 % slower", candidate=Revision(slower=1.08), stalls=0.1, instances=3),
    Setting(name="steady, limits", abort=LIMITS, is_rare=True),
    Setting(name="4 requests/s, clumps of 3", per_s=4.0, is_rare=True,
            candidate=Revision(failing=0.003, clump=3.0), stable=Revision(failing=0.003, clump=3.0)),
    Setting(name="stalls at 20 requests/s, 1 instance beside 3", per_s=20.0, stalls=0.1, instances=3, is_rare=True),
    Setting(name="stalls, 1 instance beside 1", stalls=0.1, is_rare=True),
    Setting(name="19 ms slower, median of 4 ms", candidate=Revision(median_ms=4.0, added_ms=19.0),
            stable=Revision(median_ms=4.0), is_rare=True),
    Setting(name="10 % slower, median of 500 ms", candidate=Revision(median_ms=500.0, slower=1.1), stable=HALF_SECOND,
            is_rare=True),
    Setting(name="0.2 % failures against 0.05 %", candidate=Revision(failing=0.002), stable=Revision(failing=0.0005),
            is_rare=True),
    Setting(name="failures exactly at the limit of 1 %", abort=LIMITS, candidate=Revision(failing=0.01), is_rare=True),
    Setting(name="at the limit of 1 %, clumps of 8", abort=LIMITS, candidate=Revision(failing=0.01, clump=8.0),
            bar=0.03, is_rare=True),
)  # fmt: skip
NONE = Revision(failing=0.0)
SLOW = Revision(failing=0.0, added_ms=300.0)
FIFTH = Revision(median_ms=500.0, slower=1.2)
BAD = (
    Setting(name="5 % fail, 5 % weight", candidate=FAILING, stable=NONE, weight=5),
    Setting(name="5 % fail, 5 % weight, limits", abort=LIMITS, candidate=FAILING, stable=NONE, weight=5),
    Setting(name="300 ms slower", candidate=SLOW, stable=NONE, weight=5),
    Setting(name="300 ms slower, p99 limit", abort=LIMITS, candidate=SLOW, stable=NONE, weight=5),
    Setting(name="5 % fail, 25 % weight", candidate=FAILING, stable=NONE, weight=25, is_rare=True),
    Setting(name="5 % fail, 50 % weight", candidate=FAILING, stable=NONE, weight=50, is_rare=True),
    Setting(name="all fail", candidate=Revision(failing=1.0), stable=NONE, weight=5, is_rare=True),
    Setting(name="5 % fail in clumps of 3, 2 min", candidate=Revision(failing=0.05, clump=3.0), stable=NONE, weight=5,
            windows=24, bar=0.2, is_rare=True),
    Setting(name="5 % fail in clumps of 8, 10 min", candidate=Revision(failing=0.05, clump=8.0), stable=NONE, weight=5,
            windows=120, is_rare=True),
    Setting(name="5 % fail during shared bursts", candidate=FAILING, shared_bursts=0.05, weight=5, bar=0.12,
            is_rare=True),
    Setting(name="5 % fail in one region of two, 2 min", candidate=Revision(failing=0.05, only="us"), stable=NONE,
            weight=5, windows=24, is_rare=True),
    Setting(name="300 ms slower, median of 8 ms", candidate=Revision(failing=0.0, median_ms=8.0, added_ms=300.0),
            stable=Revision(failing=0.0, median_ms=8.0), weight=5, is_rare=True),
    Setting(name="20 % slower, median of 500 ms, 25 % weight, 5 min", candidate=FIFTH, stable=HALF_SECOND, weight=25,
            windows=60, is_rare=True),
    Setting(name="20 % slower, median of 500 ms, 5 % weight, 10 min", candidate=FIFTH, stable=HALF_SECOND, weight=5,
            windows=120, bar=0.4, is_rare=True),
    Setting(name="5 % fail, before a step may pass", candidate=FAILING, stable=NONE, weight=5, until_enough=True,
            windows=60, is_rare=True),
    Setting(name="the same with limits", abort=LIMITS, candidate=FAILING, stable=NONE, weight=5, until_enough=True,
            windows=60, is_rare=True),
    Setting(name="the same at 10 requests/s", per_s=10.0, candidate=FAILING, stable=NONE, weight=5,
            windows=2000, until_enough=True, is_rare=True),
)  # fmt: skip


class Failures:
    """Of one revision in one region, with clumps that go on in the next window."""

    def __init__(self, revision: Revision, rng: random.Random) -> None:
        self.revision, self.rng, self.left = revision, rng, 0

    def draw(self, requests: int, more: float) -> int:
        mean = max(self.revision.clump, 1.0)
        failed = min(self.left, requests)
        self.left -= failed
        for _ in range(poisson(self.rng, requests * self.revision.failing / mean)):
            size = 1 if mean == 1.0 else 1 + int(log(1.0 - self.rng.random()) / log(1.0 - 1.0 / mean))
            inside = min(size, requests - int(self.rng.random() * requests))
            failed, self.left = failed + inside, self.left + size - inside
        return min(requests, failed + (poisson(self.rng, requests * more) if more else 0))


def poisson(rng: random.Random, mean: float) -> int:
    if mean > 30.0:
        return max(0, round(rng.gauss(mean, sqrt(mean))))
    count, product, least = 0, rng.random(), exp(-mean)
    while product > least:
        count, product = count + 1, product * rng.random()
    return count


@cache
def pool(mean: float, median_ms: float, slower: float, added_ms: float) -> list[tuple[int, tuple[int, ...]]]:
    """Windows of about ``mean`` requests: how many there were, and how many in each bucket."""
    rng = random.Random(f"{mean} {median_ms} {slower} {added_ms}")
    below = [share_below(max(0.0, each - added_ms) / slower * 40.0 / median_ms) for each in BOUNDS_MS]
    cumulative = [*below, 1.0]
    made = []
    for _ in range(max(300, min(3000, int(60_000 / (mean + 1))))):
        requests, buckets = poisson(rng, mean), [0] * (len(BOUNDS_MS) + 1)
        for _ in range(requests):
            buckets[bisect_left(cumulative, rng.random())] += 1
        made.append((requests, tuple(buckets)))
    return made


def share_below(ms: float) -> float:
    """Of a service with a median of 40 ms, where one request in fifty misses a cache and takes 2.5 times as long."""
    if ms <= 0.0:
        return 0.0

    def below(median: float) -> float:
        return (1.0 + erf(log(ms / median) / (0.45 * sqrt(2.0)))) / 2

    return 0.98 * below(40.0) + 0.02 * below(100.0)


class Traffic:
    """Windows of one simulated rollout."""

    def __init__(self, setting: Setting, seed: str) -> None:
        self.setting, self.rng = setting, random.Random(seed)
        self.phase = self.rng.random()
        self.candidate = {region: self._revision(setting.candidate, region) for region in ("us", "eu")}
        self.stable = {region: self._revision(setting.stable, region) for region in ("us", "eu")}

    def _revision(self, revision: Revision, region: str) -> Failures:
        return Failures(revision if revision.only in ("", region) else Revision(failing=0.0), self.rng)

    def window(self, at: int, weight: int, *, is_cold: bool) -> Window:
        setting = self.setting
        candidate: dict[str, Counts] = {}
        stable: dict[str, Counts] = {}
        is_burst = self.rng.random() < setting.shared_bursts  # of what all regions and both revisions use
        level = 0.0
        if setting.tide:
            place = (at / 36 + self.phase) % 1.0
            level = round(4 * abs(2 * place - 1) - 2) / 2 * setting.tide
        for region, share in zip(("us", "eu"), setting.shares, strict=True):
            mean = setting.per_s * WINDOW_S * share * (1.0 + level)
            slower = (3.0 if is_burst else 1.0) * (1.0 + max(0.0, level) / 2)
            mine, others = mean * weight / 100, mean * (1 - weight / 100)
            cold = slower * 4.0 if is_cold else slower
            candidate[region] = self._counts(self.candidate[region], mine, cold, is_burst, 1)
            stable[region] = self._counts(self.stable[region], others, slower, is_burst, setting.instances)
        return Window(until_ms=(at + 1) * WINDOW_S * 1000, candidate=candidate, stable=stable)

    def _counts(self, failures: Failures, mean: float, slower: float, is_burst: bool, instances: int) -> Counts:
        revision = failures.revision
        speed = slower * revision.slower
        requests, latency = self.rng.choice(pool(round(mean, 3), revision.median_ms, speed, revision.added_ms))
        failed = failures.draw(requests, 0.2 if is_burst else 0.0)
        for _ in range(instances if self.setting.stalls else 0):
            if self.rng.random() < self.setting.stalls:
                stopped = round(self.rng.uniform(0.05, 0.4) * requests / instances)
                latency, failed = stalled(latency, stopped), min(requests, failed + round(stopped / 4))
        return Counts(requests=requests, failed=failed, latency=latency)


def stalled(latency: tuple[int, ...], requests: int) -> tuple[int, ...]:
    """So many of the requests that are not slow take 300 ms longer, about."""
    found, to = list(latency), bisect_left(BOUNDS_MS, 350.0)
    for bucket in range(to):
        moved = min(found[bucket], requests)
        found[bucket], found[to], requests = found[bucket] - moved, found[to] + moved, requests - moved
    return tuple(found)


def simulated(setting: Setting, seed: str) -> int:
    """The number of windows after which analysis failed a rollout; 0 where it did not."""
    traffic, state = Traffic(setting, seed), dict[str, Any]()
    windows = setting.windows if setting.weight else STEP_WINDOWS * len(WEIGHTS)
    for at in range(windows):
        weight = setting.weight or WEIGHTS[at // STEP_WINDOWS]
        since_ms = 0 if setting.weight else at // STEP_WINDOWS * STEP_WINDOWS * WINDOW_S * 1000
        rules = Rules(
            abort=setting.abort, bounds_ms=BOUNDS_MS, regions={"us": "us", "eu": "eu"}, candidate=2, stable=1,
            since_ms=since_ms, warm_until_ms=since_ms + COLD_MS, weights={"us": weight, "eu": weight},
        )  # fmt: skip
        is_cold = (at + 1) * WINDOW_S * 1000 - since_ms < COLD_MS
        found = look(rules, state, traffic.window(at, weight, is_cold=is_cold))
        state = found.state
        if found.outcome == "fail":
            return at + 1
        if setting.until_enough and found.has_enough:
            return 0
    return 0


def wrong_share(found: list[int], *, is_good: bool) -> float:
    """The share of rollouts that were judged wrongly; ``found`` is what ``simulated`` gave for each."""
    failed = sum(1 for each in found if each)
    return failed / len(found) if is_good else 1 - failed / len(found)


def batch(work: tuple[Setting, str, int, int]) -> list[int]:
    setting, seed, first, count = work
    return [simulated(setting, f"{seed} {setting.name} {at}") for at in range(first, first + count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("settings", nargs="*", metavar="SETTING", help="parts of names")
    parser.add_argument("--rollouts", type=int, default=10_000, help="of each setting")
    parser.add_argument("--seed", default="2026-11-18", help="of the random numbers")
    parser.add_argument("--all", action="store_true", help="simulate the settings that matter less, too")
    parser.add_argument("--markdown", action="store_true", help="print the tables of the decision page")
    arguments = parser.parse_args()
    short, began = 0, time.monotonic()
    with multiprocessing.get_context("fork").Pool(2) as workers:
        for title, settings, bar in (("false alarms", GOOD, ALPHA), ("misses", BAD, MISSES)):
            print(f"\n| {title} of {arguments.rollouts} rollouts | share | bar | noticed after |\n|---|---|---|---|"
                  if arguments.markdown else f"{title} of {arguments.rollouts} rollouts")  # fmt: skip
            for setting in settings:
                is_named = any(part in setting.name for part in arguments.settings)
                if not is_named and (arguments.settings or setting.is_rare and not arguments.all):
                    continue
                counts = [min(BATCH, arguments.rollouts - at) for at in range(0, arguments.rollouts, BATCH)]
                firsts = accumulate([0, *counts[:-1]])
                works = [(setting, arguments.seed, *each) for each in zip(firsts, counts, strict=True)]
                found = [each for part in workers.imap_unordered(batch, works) for each in part]
                failed = sorted(each for each in found if each)
                share = wrong_share(found, is_good=settings is GOOD)
                is_short = share > (setting.bar or bar)
                short += is_short
                shown = f"{setting.bar or bar:.0%}"
                after = f"{failed[len(failed) // 2] * WINDOW_S} s" if failed and settings is BAD else ""
                row = (setting.name, f"{share:.2%}", shown, after)
                print("| " + " | ".join(row) + " |" if arguments.markdown
                      else f"  {row[0]:<50}{row[1]:>8}  {row[2]:>5}  {row[3]}{'  TOO MANY' if is_short else ''}",
                      flush=True)  # fmt: skip
    print(f"\n{time.monotonic() - began:.0f} s")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
