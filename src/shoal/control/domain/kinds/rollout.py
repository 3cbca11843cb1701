"""``spec.rollout`` of an app, and of its environment, whose fields are the defaults of its apps.

A field that an app has replaces the environment's as a whole. What the environment says does not count where the app's
own fields leave no use for it: its steps where the app rolls, a wave without one of the app's regions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from shoal.control.domain.fields import Reader
from shoal.control.domain.kinds.checks import is_host
from shoal.control.domain.kinds.rollout_checks import read_abort, read_checks, read_notifications
from shoal.control.domain.kinds.rollout_steps import WrittenStep, check_names, read_steps, read_waves, read_windows
from shoal.control.rollout.strategy import (
    BLUE_GREEN,
    CANARY,
    HOLD_LIMIT_S,
    INTERVAL_S,
    KEEP_S,
    RECREATE,
    ROLLING,
    STRATEGIES,
    AbortSpec,
    CheckSpec,
    NotificationSpec,
    StepSpec,
    Strategy,
    WaveSpec,
    WindowSpec,
)
from shoal.errors import FieldError, forbidden, invalid, required

T = TypeVar("T")

ON_FAILURE = ("rollback", "freeze")
DEADLINE_S = 600.0
EVERY_S = 300.0  # where a step needs it and nothing says it, which apply refuses
ALONE = (
    "at a weight of 100 there are no requests to stable to compare with: set abort.errors and a limit of latency such "
    "as abort.p99, or end with a smaller weight (the candidate gets everything after the last step anyway)"
)
# The steps that mean something in a strategy.
STEPS_OF: dict[str, tuple[str, ...]] = {
    ROLLING: ("pause", "analysis"),
    CANARY: ("weight", "replicas", "pause", "analysis", "header", "cookie", "mirror"),
    BLUE_GREEN: ("replicas", "pause", "analysis", "header", "cookie", "mirror"),
    RECREATE: ("pause",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFields:
    """What was written; None where nothing was."""

    strategy: str | None = None
    steps: tuple[WrittenStep, ...] | None = None
    every_s: float | None = None
    waves: tuple[WaveSpec, ...] | None = None
    windows: tuple[WindowSpec, ...] | None = None
    abort: AbortSpec | None = None
    judge: bool | None = None
    interval_s: float | None = None
    keep_s: float | None = None
    hold_limit_s: float | None = None
    deadline_s: float | None = None
    on_failure: str | None = None
    preview_host: str | None = None
    checks: tuple[CheckSpec, ...] | None = None
    notify: tuple[NotificationSpec, ...] | None = None


def read_fields(part: Reader, regions: Sequence[str] | None = None) -> RolloutFields:
    """The fields, each checked alone. ``regions`` are those of the app, None for an environment."""

    def given(name: str, read: Callable[[], T]) -> T | None:
        part.raw(name)  # a field without a value is known too
        return read() if part.has(name) else None

    found = RolloutFields(
        strategy=part.choice("strategy", STRATEGIES) or None,
        steps=given("steps", lambda: read_steps(part)),
        every_s=given("every", lambda: part.seconds("every", EVERY_S, 1.0)),
        waves=read_waves(part, regions) if part.has("waves") or part.has("regions") else None,
        windows=given("windows", lambda: read_windows(part)),
        abort=given("abort", lambda: _abort(part)),
        judge=given("judge", lambda: part.flag("judge", True)),
        interval_s=given("interval", lambda: part.seconds("interval", INTERVAL_S, 5.0)),
        keep_s=given("keep", lambda: part.seconds("keep", KEEP_S)),
        hold_limit_s=given("holdLimit", lambda: part.seconds("holdLimit", HOLD_LIMIT_S, 60.0)),
        deadline_s=given("deadline", lambda: part.seconds("deadline", DEADLINE_S, 1.0)),
        on_failure=part.choice("onFailure", ON_FAILURE) or None,
        preview_host=part.text("previewHost", check=is_host) or None,
        checks=given("checks", lambda: read_checks(part, regions)),
        notify=given("notify", lambda: read_notifications(part)),
    )
    part.raw("waves")
    part.raw("regions")
    part.close()
    if found.strategy is not None:  # without one, the environment may name it
        _check_kind(part, found, found.strategy)
    return found


def _abort(part: Reader) -> AbortSpec:
    inner = part.part("abort")
    return read_abort(inner) if inner is not None else AbortSpec()


def read_rollout(
    part: Reader | None,
    defaults: Mapping[str, Any] | None = None,
    regions: Sequence[str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> Strategy:
    """The strategy of an app: its own fields, else those of its environment, else defaults. ``part.errors`` has what is
    wrong with it; what is wrong with the environment's alone is left out."""
    if not (part and part.names()) and not defaults:
        return Strategy()
    part = part or Reader({}, "spec.rollout", [])
    own = read_fields(part, regions)
    inherited = read_fields(Reader(defaults, "spec.rollout", [])) if defaults else RolloutFields()
    fields = _merged(own, _without_use(own, inherited, regions))
    kind = fields.strategy or (CANARY if fields.steps else ROLLING)
    if own.strategy is None:
        _check_kind(part, own, kind)
    is_judged = fields.judge if fields.judge is not None else kind == CANARY or _has_rules(fields.abort)
    is_judged = is_judged and kind != RECREATE
    _check_whole(part, fields, kind, is_judged=is_judged)
    every_s = EVERY_S if fields.every_s is None else fields.every_s
    return Strategy(
        kind=kind,
        is_configured=True,
        steps=_expanded(fields.steps or (), STEPS_OF[kind], "analysis" if is_judged else "pause", every_s),
        waves=fields.waves or (),
        abort=fields.abort or AbortSpec(),
        is_judged=is_judged,
        interval_s=_or(fields.interval_s, INTERVAL_S),
        keep_s=_or(fields.keep_s, KEEP_S),
        hold_limit_s=_or(fields.hold_limit_s, HOLD_LIMIT_S),
        deadline_s=_or(fields.deadline_s, deadline_s),
        on_failure=fields.on_failure or ON_FAILURE[0],
        preview_host=(fields.preview_host or "") if kind == BLUE_GREEN else "",
        windows=fields.windows or (),
        checks=fields.checks or (),
        notify=fields.notify or (),
    )


def strategy_of(app: Mapping[str, Any], environment: Mapping[str, Any]) -> Strategy:
    """The strategy of an app of which these specs are stored."""
    return _read_stored(app, environment, [])


def rollout_faults(app: Mapping[str, Any], environment: Mapping[str, Any]) -> list[FieldError]:
    """What is wrong with the rollout of an app together with what its environment says."""
    errors: list[FieldError] = []
    _read_stored(app, environment, errors)
    return errors


def _read_stored(app: Mapping[str, Any], environment: Mapping[str, Any], errors: list[FieldError]) -> Strategy:
    regions = [str(row.get("region")) for row in app.get("topology") or ()]
    deadline_s = float((app.get("readiness") or {}).get("deadline") or DEADLINE_S)
    own = Reader(app.get("rollout"), "spec.rollout", errors)
    return read_rollout(own, environment.get("rollout") or None, regions, deadline_s)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _merged(own: RolloutFields, inherited: RolloutFields) -> RolloutFields:
    names = RolloutFields.__dataclass_fields__
    said = {name: getattr(own, name) for name in names if getattr(own, name) is not None}
    return replace(inherited, **said)


def _without_use(own: RolloutFields, inherited: RolloutFields, regions: Sequence[str] | None) -> RolloutFields:
    """What an environment says without that which the app's own fields leave no use for."""
    kind = own.strategy or inherited.strategy or (CANARY if own.steps or inherited.steps else ROLLING)
    kinds = {"weight" if isinstance(step, int) else step.kind for step in inherited.steps or ()}
    if not kinds <= set(STEPS_OF[kind]):
        inherited = replace(inherited, steps=None)
    if kind != BLUE_GREEN:
        inherited = replace(inherited, preview_host=None)
    if kind == RECREATE or own.judge is False:
        inherited = replace(inherited, abort=None)
    if kind == RECREATE or own.abort is not None:
        inherited = replace(inherited, judge=None)
    if regions is not None and inherited.waves is not None:
        inherited = replace(inherited, waves=_known_waves(inherited.waves, regions))
    return inherited


def _known_waves(waves: Sequence[WaveSpec], regions: Collection[str]) -> tuple[WaveSpec, ...]:
    known = [replace(each, regions=tuple(name for name in each.regions if name in regions)) for each in waves]
    return tuple(each for each in known if each.regions or each.percent)


def _expanded(
    steps: Sequence[WrittenStep], possible: Collection[str], waits: str, every_s: float
) -> tuple[StepSpec, ...]:
    """Numbers as weights that last a while; without steps that the strategy does not have."""
    found: list[StepSpec] = []
    for step in steps:
        if isinstance(step, StepSpec):
            found.append(step)
        else:
            found += (StepSpec(kind="weight", percent=step), StepSpec(kind=waits, seconds=every_s))
    return tuple(step for step in found if step.kind in possible)


def _check_kind(part: Reader, own: RolloutFields, kind: str) -> None:
    """What the app's own fields may not have in this strategy."""
    for index, step in enumerate(own.steps or ()):
        name = "weight" if isinstance(step, int) else step.kind
        if name not in STEPS_OF[kind]:
            why = f"strategy {kind} has no {name} steps; it has {', '.join(STEPS_OF[kind])}"
            part.note(forbidden(f"{part.at('steps')}[{index}]", why))
    if own.preview_host is not None and kind != BLUE_GREEN:
        part.note(forbidden(part.at("previewHost"), f"strategy {kind} has no preview: use strategy blueGreen"))
    if kind == RECREATE:
        why = "strategy recreate has no revision to compare with: leave it out, or use another strategy"
        if own.judge:
            part.note(forbidden(part.at("judge"), why))
        if _has_rules(own.abort):
            part.note(forbidden(part.at("abort"), why))


def _check_whole(part: Reader, fields: RolloutFields, kind: str, *, is_judged: bool) -> None:
    """What only all fields together show."""
    steps = fields.steps or ()
    if kind == CANARY and not steps:
        part.note(required(part.at("steps"), "a canary needs steps, such as [5, 25, 50] with every: 2m"))
    if fields.every_s is None and any(isinstance(step, int) for step in steps):
        part.note(required(part.at("every"), "how long each weight in steps lasts, such as 2m"))
    if fields.judge is False and _has_rules(fields.abort):
        part.note(
            forbidden(part.at("abort"), "its rules are not looked at while judge is false: leave one of both out")
        )
    check_names(part, steps, [check.name for check in fields.checks or ()])
    _check_analysis(part, fields, kind, is_judged=is_judged)


def _check_analysis(part: Reader, fields: RolloutFields, kind: str, *, is_judged: bool) -> None:
    """An analysis needs something that judges, and requests that reach the candidate."""
    abort = fields.abort or AbortSpec()
    compares, weight = is_judged and (abort.errors is None or not abort.latency), 0
    has_requests = kind == ROLLING or bool(fields.preview_host)
    for index, step in enumerate(fields.steps or ()):
        weight = step if isinstance(step, int) else step.percent if step.kind == "weight" else weight
        if compares and weight == 100 and (isinstance(step, int) or step.kind == "analysis"):
            part.note(invalid(f"{part.at('steps')}[{index}]", "100 %" if isinstance(step, int) else "analysis", ALONE))
        if isinstance(step, int):
            has_requests = has_requests or step > 0
            continue
        has_requests = has_requests or bool(step.name) or (step.kind in ("weight", "mirror") and step.percent > 0)
        if step.kind != "analysis" or fields.checks:
            continue
        path = f"{part.at('steps')}[{index}]"
        if not is_judged:
            part.note(invalid(path, "analysis", "nothing judges it: set a rule in abort, judge: true, or checks"))
        elif not has_requests:
            why = "the candidate gets no requests before it: put a weight, mirror, header or cookie step first"
            part.note(invalid(path, "analysis", why))


def _has_rules(abort: AbortSpec | None) -> bool:
    return abort is not None and (abort.errors is not None or bool(abort.latency))
