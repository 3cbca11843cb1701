"""``spec.rollout`` is read whole: every way to write it, what an environment adds, and what is refused, with the fix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fleet_world import an_app, doc
from hypothesis import given
from hypothesis import strategies as st

from shoal.control.domain.kinds.app import AppSpec
from shoal.control.domain.kinds.rollout import rollout_faults, strategy_of
from shoal.control.domain.plan import template_hash, template_of
from shoal.control.domain.specs import parse, read_app_spec
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
from shoal.errors import Invalid

SHORT: dict[str, Any] = {
    "steps": [5, 25, 50], "every": "2m", "regions": ["us", "eu"], "abort": {"errors": "1%", "p99": "500ms"},
}  # fmt: skip
LONG: dict[str, Any] = {
    "strategy": "canary",
    "steps": [
        {"weight": 5},
        {"analysis": "2m"},
        {"analysis": {"for": "90s", "checks": ["smoke"]}},
        {"replicas": "50%"},
        {"replicas": 3},
        {"header": {"name": "X-Canary", "value": "1"}},
        {"header": {}},
        {"cookie": {"name": "canary", "value": "1"}},
        {"mirror": 10},
        {"pause": "10m"},
        {"pause": {"for": "1h30m"}},
        {"pause": {}},
        {"pause": "approval"},
    ],
    "waves": [
        {"name": "first", "regions": ["us"], "soak": "10m", "concurrency": 1, "maxFailures": 2},
        {"percent": 100},
    ],
    "windows": [
        {"days": ["thu", "mon"], "from": "09:00", "until": "16:30"},
        {"days": ["sat"]},
    ],
    "abort": {"minRequests": 200, "errors": "0.5%", "p99": "500ms", "p50": "1s", "p99.9": "2s"},
    "interval": "10s", "keep": "0s", "holdLimit": "7d", "deadline": "5m", "onFailure": "freeze",
    "checks": [
        {"name": "smoke", "kind": "webhook", "url": "https://checks.example.com/verify", "secret": "token",
         "interval": "1m", "failures": 3},
        {"name": "load", "kind": "prometheus", "url": "http://prom:9090", "query": "up{r='{{revision}}'}",
         "condition": "== 1"},
        {"name": "clean", "kind": "query", "query": "kind = Pod and status = Failed"},
    ],
    "notify": [{"url": "https://chat.example.com/hook", "format": "slack", "secret": "chat", "on": ["start", "rollback"]}],
}  # fmt: skip


def spec(rollout: Any, *regions: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = an_app(regions=regions or ("eu", "us"), rollout=rollout, **more)["spec"]
    return found


def faults(rollout: Any, *regions: str, environment: Any = None, **more: Any) -> dict[str, str]:
    """What an apply of the app refuses: what its document shows, and what shows together with its environment."""
    try:
        document = parse(an_app(regions=regions or ("eu", "us"), rollout=rollout, **more))
    except Invalid as error:
        return {each.field: each.body for each in error.errors}
    found = rollout_faults(document.raw, {"rollout": environment} if environment else {})
    return {each.field: each.body for each in found}


def strategy(rollout: Any, *regions: str, environment: Any = None, **more: Any) -> Strategy:
    assert faults(rollout, *regions, environment=environment, **more) == {}
    return strategy_of(spec(rollout, *regions, **more), {"rollout": environment} if environment else {})


def test_an_app_that_says_nothing_rolls_and_is_not_configured() -> None:
    assert strategy_of(an_app()["spec"], {}) == Strategy()
    assert strategy_of(an_app()["spec"], {"description": "x"}) == Strategy()
    assert strategy({}) == strategy(None) == Strategy()
    assert not Strategy().is_configured


def test_the_short_form_reads_as_a_sentence() -> None:
    found = strategy(SHORT)
    assert [(step.kind, step.percent, step.seconds) for step in found.steps] == [
        ("weight", 5, 0), ("analysis", 0, 120), ("weight", 25, 0), ("analysis", 0, 120), ("weight", 50, 0),
        ("analysis", 0, 120),
    ]  # fmt: skip
    assert found.waves == (WaveSpec(name="us", regions=("us",)), WaveSpec(name="eu", regions=("eu",)))
    assert found.abort == AbortSpec(errors=0.01, latency=(LatencyLimit(quantile=0.99, ms=500),))
    assert (found.kind, found.is_configured, found.is_judged) == ("canary", True, True)


def test_numbers_are_followed_by_pauses_where_nothing_judges() -> None:
    found = strategy({"steps": [5, {"weight": 50}], "every": "2m", "judge": False})
    assert [(step.kind, step.percent, step.seconds) for step in found.steps] == [
        ("weight", 5, 0), ("pause", 0, 120), ("weight", 50, 0),
    ]  # fmt: skip
    assert not found.is_judged


def test_the_long_form_is_read_field_by_field() -> None:
    found = strategy(LONG)
    assert found.steps == (
        StepSpec(kind="weight", percent=5),
        StepSpec(kind="analysis", seconds=120),
        StepSpec(kind="analysis", seconds=90, checks=("smoke",)),
        StepSpec(kind="replicas", percent=50),
        StepSpec(kind="replicas", count=3),
        StepSpec(kind="header", name="X-Canary", value="1"),
        StepSpec(kind="header"),
        StepSpec(kind="cookie", name="canary", value="1"),
        StepSpec(kind="mirror", percent=10),
        StepSpec(kind="pause", seconds=600),
        StepSpec(kind="pause", seconds=5400),
        StepSpec(kind="pause"),
        StepSpec(kind="pause"),
    )
    assert [step.needs_approval for step in found.steps[-3:]] == [False, True, True]
    assert found.waves == (
        WaveSpec(name="first", regions=("us",), soak_s=600, concurrency=1, max_failures=2),
        WaveSpec(name="wave-2", percent=100),
    )
    assert found.windows == (
        WindowSpec(days=(0, 3), from_s=9 * 3600, until_s=16 * 3600 + 1800),
        WindowSpec(days=(5,), from_s=0, until_s=86400),
    )
    assert found.abort == AbortSpec(
        errors=0.005,
        min_requests=200,
        latency=tuple(LatencyLimit(quantile=at, ms=ms) for at, ms in ((0.5, 1000), (0.99, 500), (0.999, 2000))),
    )
    assert (found.interval_s, found.keep_s, found.hold_limit_s, found.deadline_s) == (10, 0, 7 * 86400, 300)
    assert found.on_failure == "freeze"
    assert found.checks == (
        CheckSpec(name="smoke", kind="webhook", interval_s=60, failures=3,
                  settings={"url": "https://checks.example.com/verify", "secret": "token"}),
        CheckSpec(name="load", kind="prometheus",
                  settings={"url": "http://prom:9090", "query": "up{r='{{revision}}'}", "condition": "== 1"}),
        CheckSpec(name="clean", kind="query", settings={"query": "kind = Pod and status = Failed"}),
    )  # fmt: skip
    assert found.notify == (
        NotificationSpec(url="https://chat.example.com/hook", format="slack", secret="chat", on=("start", "rollback")),
    )


def test_the_word_on_may_be_written_without_quotes_in_yaml() -> None:
    found = strategy({"strategy": "rolling", "notify": [{"url": "https://a.example", "true": ["start"]}]})
    assert found.notify[0].on == ("start",)
    assert len(strategy({"strategy": "rolling", "notify": [{"url": "https://a.example"}]}).notify[0].on) == 4


def test_items_of_regions_are_waves() -> None:
    found = strategy({"strategy": "rolling", "regions": ["us", ["eu", "asia"]]}, "eu", "us", "asia")
    assert [wave.regions for wave in found.waves] == [("us",), ("eu", "asia")]


@pytest.mark.parametrize(
    ("rollout", "kind", "is_judged"),
    [
        ({"steps": [5], "every": "1m"}, "canary", True),
        ({"steps": [5], "every": "1m", "judge": False}, "canary", False),
        ({"strategy": "rolling"}, "rolling", False),
        ({"abort": {"errors": "1%"}}, "rolling", True),
        ({"strategy": "blueGreen", "previewHost": "next.example.com"}, "blueGreen", False),
        ({"strategy": "blueGreen", "judge": True}, "blueGreen", True),
        ({"strategy": "recreate"}, "recreate", False),
    ],
)
def test_a_canary_is_judged_unless_it_says_not_to_and_others_if_they_have_rules(
    rollout: dict[str, Any], kind: str, is_judged: bool
) -> None:
    found = strategy(rollout)
    assert (found.kind, found.is_judged, found.is_configured) == (kind, is_judged, True)


def test_the_deadline_of_readiness_is_the_default_of_the_rollouts() -> None:
    assert strategy({"strategy": "rolling"}).deadline_s == 600
    assert strategy({"strategy": "rolling"}, readiness={"deadline": 1200}).deadline_s == 1200
    assert strategy({"strategy": "rolling", "deadline": "1m"}, readiness={"deadline": 1200}).deadline_s == 60


def test_a_field_of_the_app_replaces_that_of_its_environment_as_a_whole() -> None:
    defaults = {**SHORT, "keep": "5m"}
    assert strategy(None, environment=defaults) == strategy(defaults)
    found = strategy({"abort": {"p50": "100ms"}, "steps": [10]}, environment=defaults)
    assert found.abort == AbortSpec(latency=(LatencyLimit(quantile=0.5, ms=100),))
    assert [step.percent for step in found.steps] == [10, 0]
    assert (found.keep_s, found.steps[1].seconds, len(found.waves)) == (300, 120, 2)
    assert strategy({"waves": [{"percent": 100}]}, environment=defaults).waves == (
        WaveSpec(name="wave-1", percent=100),
    )


def test_what_an_environment_says_does_not_count_where_the_app_has_no_use_for_it() -> None:
    assert strategy({"strategy": "rolling"}, environment=SHORT).steps == ()
    assert strategy({"strategy": "recreate"}, environment=SHORT).is_judged is False
    assert [wave.regions for wave in strategy(None, "eu", environment=SHORT).waves] == [("eu",)]
    preview = {"strategy": "blueGreen", "previewHost": "next.example.com"}
    assert strategy({"strategy": "rolling"}, environment=preview).preview_host == ""
    assert strategy({"judge": False}, environment=SHORT).abort == AbortSpec()
    assert strategy({"abort": {"errors": "2%"}}, environment={"judge": False, "steps": [5], "every": "1m"}).is_judged


def test_a_stored_strategy_can_be_read_whatever_its_environment_says_later() -> None:
    """The environment may be changed after the app: what does not fit any more is left out, and nothing is raised."""
    app = spec({"steps": [{"weight": 5}, {"analysis": "1m"}]})
    assert [step.kind for step in strategy_of(app, {"rollout": {"strategy": "recreate"}}).steps] == []
    assert strategy_of(app, {"rollout": {"strategy": 5, "steps": "x"}}).kind == "canary"
    assert strategy_of(spec({"steps": [5]}), {}).steps[1].seconds > 0


def test_the_rollout_is_no_part_of_a_revision() -> None:
    def digest(app: dict[str, Any]) -> str:
        return template_hash(template_of(read_app_spec(app)))

    assert digest(spec(SHORT)) == digest(spec(LONG)) == digest(an_app(regions=("eu", "us"))["spec"])
    parsed = parse(an_app(regions=("eu", "us"), rollout=SHORT)).spec
    assert isinstance(parsed, AppSpec) and parsed.rollout == SHORT


CHECK = {"name": "a", "kind": "webhook", "url": "https://a.example"}
JOB = {"name": "j", "kind": "job", "image": "shop/smoke:1"}
PROMETHEUS = {"name": "p", "kind": "prometheus", "url": "http://prom:9090", "query": "up"}


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"steps": [25, 5], "every": "1m"}, "steps[1]", "may not go down"),
        ({"steps": [5, {"weight": 0}], "every": "1m"}, "steps[1]", "may not go down"),
        ({"steps": [{"weight": 0}]}, "steps[0]", "may not be 0"),
        ({"steps": [101], "every": "1m"}, "steps[0]", "between 0 and 100"),
        ({"steps": [{"weight": 101}]}, "steps[0].weight", "between 0 and 100"),
        ({"steps": [{"mirror": 101}]}, "steps[0].mirror", "between 0 and 100"),
        ({"steps": ["5"]}, "steps[0]", "must be a weight such as 5, or a step"),
        ({"steps": [True]}, "steps[0]", "must be a weight"),
        ({"steps": [5]}, "every", "how long each weight"),
        ({"steps": [{}]}, "steps[0]", "one of weight"),
        ({"steps": [{"weight": 5, "pause": "1m"}]}, "steps[0].pause", "may not be used together with weight"),
        ({"steps": [{"weigth": 5}]}, "steps[0].weigth", "did you mean weight?"),
        ({"steps": [{"weight": 5}] * 101}, "steps", "at most 100"),
        ({"steps": []}, "steps", None),
        ({"strategy": "canary"}, "steps", "a canary needs steps, such as [5, 25, 50]"),
        ({"steps": [{"replicas": "0%"}]}, "steps[0].replicas", "between 1% and 100%"),
        ({"steps": [{"replicas": 0}]}, "steps[0].replicas", "between 1 and 10000"),
        ({"steps": [{"pause": "soon"}]}, "steps[0].pause", "with a unit"),
        ({"steps": [{"pause": 5}]}, "steps[0].pause", "with a unit"),
        ({"steps": [{"pause": "31d"}]}, "steps[0].pause", "between 1s and 30d"),
        ({"steps": [{"pause": {"duration": "1m"}}]}, "steps[0].pause.duration", "unknown field"),
        ({"steps": [{"weight": 5}, {"analysis": {}}]}, "steps[1].analysis.for", "how long"),
        ({"steps": [{"weight": 5}, {"analysis": {"for": "1m", "checks": ["x"]}}]}, "steps[1].analysis.checks[0]", "x"),
        ({"steps": [{"analysis": "1m"}]}, "steps[0]", "gets no requests before it"),
        ({"steps": [{"weight": 5}, {"analysis": "1m"}], "judge": False}, "steps[1]", "nothing judges it"),
        ({"strategy": "rolling", "steps": [{"analysis": "1m"}]}, "steps[0]", "nothing judges it"),
        ({"steps": [{"header": {"name": "a b", "value": "1"}}]}, "steps[0].header.name", "a b"),
        ({"steps": [{"header": {"name": "X-A"}}]}, "steps[0].header.value", "Required"),
        ({"steps": [{"cookie": {"value": "1"}}]}, "steps[0].cookie.name", "Required"),
        ({"steps": [{"header": {"name": "X-A", "value": 1}}]}, "steps[0].header.value", "put it in quotes"),
        ({"strategy": "blue-green"}, "strategy", "blueGreen"),
        ({"strategy": "recreate", "steps": [{"analysis": "1m"}]}, "steps[0]", "strategy recreate has no analysis"),
        ({"strategy": "recreate", "steps": [{"mirror": 5}]}, "steps[0]", "strategy recreate has no mirror steps"),
        ({"strategy": "recreate", "judge": True}, "judge", "another strategy"),
        ({"strategy": "recreate", "abort": {"errors": "1%"}}, "abort", "another strategy"),
        ({"strategy": "rolling", "steps": [5], "every": "1m"}, "steps[0]", "strategy rolling has no weight steps"),
        ({"strategy": "blueGreen", "steps": [{"weight": 5}]}, "steps[0]", "strategy blueGreen has no weight steps"),
        ({"strategy": "rolling", "previewHost": "a.example.com"}, "previewHost", "use strategy blueGreen"),
        ({"steps": [5], "every": "1m", "previewHost": "a.example.com"}, "previewHost", "use strategy blueGreen"),
        ({"strategy": "blueGreen", "previewHost": "a b"}, "previewHost", "a b"),
        ({"abort": {"errors": None}}, "abort.errors", "such as 1%"),
        ({"abort": {"errors": "high"}}, "abort.errors", "such as 1%"),
        ({"abort": {"errors": 1}}, "abort.errors", "such as 1%"),
        ({"abort": {"errors": "101%"}}, "abort.errors", "percentage"),
        ({"abort": {"p99": None}}, "abort.p99", "needs a number, such as 500ms"),
        ({"abort": {"p99": 500}}, "abort.p99", "with a unit"),
        ({"abort": {"p99": "0s"}}, "abort.p99", "between"),
        ({"abort": {"p98": "1s"}}, "abort.p98", "did you mean"),
        ({"abort": {"minRequests": None}}, "abort.minRequests", "such as 200"),
        ({"abort": {"minRequests": 0}}, "abort.minRequests", "between 1 and"),
        ({"abort": {"minRequests": "200"}}, "abort.minRequests", "whole number"),
        ({"steps": [5, 100], "every": "1m"}, "steps[1]", "no requests to stable to compare with: set abort.errors and"),
        ({"steps": [{"weight": 100}, {"analysis": "1m"}], "abort": {"errors": "1%"}}, "steps[1]", "such as abort.p99"),
        ({"steps": [{"weight": 100}, {"analysis": "1m"}], "abort": {"p99": "1s"}}, "steps[1]", "a smaller weight"),
        ({"abort": {"errors": "1%"}, "judge": False}, "abort", "while judge is false"),
        ({"regions": ["mars"]}, "regions[0]", "use one of eu, us"),
        ({"regions": ["us", ["eu", "us"]]}, "regions[1][1]", "one wave only"),
        ({"regions": "us"}, "regions", "must be a list"),
        ({"regions": [5]}, "regions[0]", "name of a region"),
        ({"regions": [[]]}, "regions[0]", "name of a region"),
        ({"regions": ["us"], "waves": [{"percent": 5}]}, "regions", "together with waves"),
        ({"waves": [{"regions": ["mars"]}]}, "waves[0].regions[0]", "use one of eu, us"),
        ({"waves": [{"regions": ["us"]}, {"regions": ["us"]}]}, "waves[1].regions[0]", "one wave only"),
        ({"waves": [{"percent": 60}, {"percent": 50}]}, "waves", "may not be more than 100 together"),
        ({"waves": [{"percent": 101}]}, "waves[0].percent", "between 1 and 100"),
        ({"waves": [{}]}, "waves[0]", "one of regions, percent"),
        ({"waves": [{"regions": ["us"], "percent": 5}]}, "waves[0].percent", "together with regions"),
        ({"waves": [{"name": "a", "regions": ["us"]}, {"name": "a", "percent": 9}]}, "waves[1].name", "Duplicate"),
        ({"waves": [{"regions": ["us"], "soak": "31d"}]}, "waves[0].soak", "between 0s and 30d"),
        ({"windows": [{"from": "09:00"}]}, "windows[0].days", "at least one of mon"),
        ({"windows": [{"days": ["monday"]}]}, "windows[0].days[0]", '"mon"'),
        ({"windows": [{"days": ["mon"], "from": "9:00"}]}, "windows[0].from", "in quotes"),
        ({"windows": [{"days": ["mon"], "until": "25:00"}]}, "windows[0].until", "time of the day"),
        ({"interval": "1s"}, "interval", "between 5s and 30d"),
        ({"holdLimit": "1s"}, "holdLimit", "between 1m and 30d"),
        ({"keep": "-1s"}, "keep", "between 0s and 30d"),
        ({"deadline": "31d"}, "deadline", "30d"),
        ({"every": "0s"}, "every", "between 1s"),
        ({"onFailure": "ignore"}, "onFailure", '"freeze", "rollback"'),
        ({"judge": "no"}, "judge", "true or false"),
        ({"checks": [{**CHECK, "kind": "curl"}]}, "checks[0].kind", "webhook"),
        ({"checks": [{"kind": "webhook", "url": "https://a.example"}]}, "checks[0].name", "Required"),
        ({"checks": [{"name": "a", "kind": "webhook"}]}, "checks[0].url", "kind webhook needs it"),
        ({"checks": [{**CHECK, "url": "ftp://a"}]}, "checks[0].url", "use http(s)://HOST[:PORT]/PATH"),
        ({"checks": [{**CHECK, "url": "https://u:p@a"}]}, "checks[0].url", "send a header with the credentials"),
        ({"checks": [{**CHECK, "query": "x"}]}, "checks[0].query", "kind webhook does not have it"),
        ({"checks": [{**CHECK, "failures": 0}]}, "checks[0].failures", "between 1 and 100"),
        ({"checks": [{**CHECK, "kind": "job", "image": "a"}]}, "checks[0].url", "kind job does not have it"),
        ({"checks": [{"name": "a", "kind": "job"}]}, "checks[0].image", "kind job needs it"),
        ({"checks": [{**JOB, "image": "a b"}]}, "checks[0].image", "image reference"),
        ({"checks": [{**JOB, "region": "mars"}]}, "checks[0].region", "mars"),
        ({"checks": [{**JOB, "timeout": "2h"}]}, "checks[0].timeout", "between 1s and 1h"),
        ({"checks": [{**JOB, "resources": {"cpu": "0"}}]}, "checks[0].resources.cpu", "greater than 0"),
        ({"checks": [{**JOB, "resources": {"gpu": "1"}}]}, "checks[0].resources.gpu", "unknown field"),
        ({"checks": [{**CHECK, "timeout": "1m"}]}, "checks[0].timeout", "kind webhook does not have it"),
        ({"checks": [{**CHECK, "ca": "x"}]}, "checks[0].ca", "certificates in PEM"),
        ({"checks": [PROMETHEUS]}, "checks[0].condition", "kind prometheus needs it"),
        ({"checks": [{**PROMETHEUS, "condition": "is good"}]}, "checks[0].condition", "and a number, such as < 0.01"),
        ({"checks": [{**PROMETHEUS, "query": "{{revison}}"}]}, "checks[0].query", "has the placeholder 'revison'"),
        ({"checks": [CHECK, CHECK]}, "checks[1].name", "Duplicate"),
        ({"notify": [{"url": ""}]}, "notify[0].url", "Required"),
        ({"notify": [{"url": "https://a", "format": "teams"}]}, "notify[0].format", "slack"),
        ({"notify": [{"url": "https://a", "on": ["end"]}]}, "notify[0].on[0]", "rollback"),
        ({"rules": {}}, "rules", "unknown field"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_its_field_and_the_fix(change: dict[str, Any], field: str, words: str | None) -> None:
    found = faults(change)
    if words is None:
        assert not found
    else:
        assert words in found.get(f"spec.rollout.{field}", ""), found


def test_an_environment_is_checked_alone_and_knows_no_regions() -> None:
    parse(doc("Environment", "prod", {"rollout": SHORT}))
    with pytest.raises(Invalid) as caught:
        parse(doc("Environment", "prod", {"rollout": {"strategy": "recreate", "steps": [5], "keep": "x"}}))
    assert {each.field for each in caught.value.errors} == {"spec.rollout.steps[0]", "spec.rollout.keep"}


def test_a_rollout_that_is_no_object_is_refused() -> None:
    assert "must be an object" in faults("canary")["spec.rollout"]
    with pytest.raises(Invalid):
        parse(doc("Environment", "prod", {"rollout": ["canary"]}))


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.sampled_from(["1m", "5%", "us", "eu", "x", "", "approval"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from([*LONG, *SHORT, "weight", "pause", "analysis", "header", "name", "kind", "for", "judge"]), inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(anything, anything)
def test_whatever_is_written_is_read_or_refused_and_never_fails(rollout: Any, environment: Any) -> None:
    faults(rollout, environment=environment)
    found = strategy_of(spec(rollout), {"rollout": environment})
    weights = [step.percent for step in found.steps if step.kind == "weight"]
    assert all(0 <= weight <= 100 for weight in weights)
    assert replace(found, kind=found.kind) == found


def test_an_analysis_at_a_weight_of_100_needs_limits_for_errors_and_latency_or_nothing_to_compare() -> None:
    steps: dict[str, Any] = {"steps": [5, 100], "every": "1m"}
    assert strategy({**steps, "abort": {"errors": "1%", "p99": "500ms"}}).is_judged
    assert not strategy({**steps, "judge": False}).is_judged


def test_a_rule_may_say_how_many_requests_an_analysis_waits_for() -> None:
    found = strategy({"abort": {"minRequests": 200}, "steps": [5], "every": "1m"}).abort
    assert (found.min_requests, found.errors, found.latency) == (200, None, ())
    assert strategy({"steps": [5], "every": "1m"}).abort.min_requests == 0
