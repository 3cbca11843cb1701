"""A strategy is stored and read again as it was, also by an older or a newer version."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from shoal.control.rollout.strategy import (
    AbortSpec,
    CheckSpec,
    LatencyLimit,
    NotificationSpec,
    StepSpec,
    Strategy,
    WaveSpec,
    WindowSpec,
)
from shoal.control.rollout.strategy_json import strategy_as_json, strategy_from_json

FULL = Strategy(
    kind="canary",
    is_configured=True,
    steps=(StepSpec(kind="weight", percent=5), StepSpec(kind="analysis", seconds=60, checks=("a", "b"))),
    waves=(WaveSpec(name="first", regions=("us", "eu"), soak_s=60, concurrency=1, max_failures=2),),
    abort=AbortSpec(errors=0.01, latency=(LatencyLimit(quantile=0.99, ms=500),), min_requests=200),
    is_judged=True,
    windows=(WindowSpec(days=(0, 4), from_s=0, until_s=3600),),
    checks=(CheckSpec(name="a", kind="webhook", settings={"url": "https://a"}),),
    notify=(NotificationSpec(url="https://b", on=("start",)),),
)

texts = st.text(max_size=5)
seconds = st.integers(0, 10**6).map(float)
strategies = st.builds(
    Strategy,
    kind=st.sampled_from(["rolling", "canary"]),
    steps=st.lists(
        st.builds(StepSpec, kind=texts, percent=st.integers(0, 100), seconds=seconds, checks=st.tuples(texts, texts)),
        max_size=3,
    ).map(tuple),
    waves=st.lists(st.builds(WaveSpec, name=texts, regions=st.tuples(texts), soak_s=seconds), max_size=3).map(tuple),
    windows=st.lists(st.builds(WindowSpec, days=st.tuples(st.integers(0, 6)), from_s=st.integers(0), until_s=st.just(1)),
                     max_size=2).map(tuple),
    abort=st.builds(AbortSpec, errors=st.none() | st.floats(0, 1),
                    latency=st.lists(st.builds(LatencyLimit, quantile=st.just(0.5), ms=seconds), max_size=2).map(tuple)),
    checks=st.lists(st.builds(CheckSpec, name=texts, kind=texts, settings=st.dictionaries(texts, texts)),
                    max_size=2).map(tuple),
    notify=st.lists(st.builds(NotificationSpec, url=texts, on=st.tuples(texts)), max_size=2).map(tuple),
    keep_s=seconds,
)  # fmt: skip


@given(strategies)
def test_a_strategy_comes_back_as_it_was(strategy: Strategy) -> None:
    assert strategy_from_json(json.loads(json.dumps(strategy_as_json(strategy)))) == strategy


def test_every_default_is_stored() -> None:
    assert strategy_as_json(Strategy())["keep_s"] == 1800
    assert strategy_from_json({}) == Strategy()


def test_fields_of_other_versions_are_dropped_at_every_depth() -> None:
    found = json.loads(json.dumps(strategy_as_json(FULL)))
    for each in (found, found["abort"], found["abort"]["latency"][0]):
        each["later"] = 1
    for name in ("steps", "waves", "windows", "checks", "notify"):
        found[name][0]["later"] = {"a": 1}
        found[name][0] = dict(found[name][0])
    assert strategy_from_json(found) == FULL
    del found["steps"][1]["seconds"], found["notify"], found["abort"]["latency"]
    older = strategy_from_json(found)
    assert (older.steps[1].seconds, older.notify, older.abort) == (0.0, (), AbortSpec(errors=0.01, min_requests=200))
