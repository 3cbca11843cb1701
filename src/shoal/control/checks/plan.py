"""Which checks of a rollout are due, what an answer changes, and what the answers mean for the rollout. Pure.

Checks belong to analysis steps. They are asked from the moment that every region has what the step grants (the step is
*settled*), again at their interval, until the step ends. Answers of an earlier settling count for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shoal.control.rollout.progress import RUNNING, CheckFacts, Progress
from shoal.control.rollout.strategy import CheckSpec, Strategy

LEASE_MS = 30_000  # one who has claimed a check and says nothing for so long has ended; a call takes 5 s


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckKey:
    """One check in one settling of one step. ``region`` is empty where a check is asked once for all of them."""

    wave: int
    step: int
    settled_ms: int
    name: str
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """``passed`` is None where the answer says neither: it could not be asked, or there are no numbers yet."""

    passed: bool | None
    reason: str
    numbers: dict[str, Any] = field(default_factory=dict)
    again_s: float = 0.0  # it is not an answer yet: ask again after this time


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCheck:
    """What is known of a check. ``passed`` is of the newest answer."""

    key: CheckKey
    due_ms: int
    asked_ms: int = 0
    passed: bool | None = None
    failures: int = 0  # in a row; an answer that says neither leaves them
    reason: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCheck:
    """``known`` is None for one that was never asked."""

    check: CheckSpec
    key: CheckKey
    known: KnownCheck | None


def checks_of(strategy: Strategy, progress: Progress) -> tuple[CheckSpec, ...]:
    """The checks of the step that is under way; none while the step is not settled, or once a person has ended it."""
    is_step = not progress.is_hurried and progress.step < len(strategy.steps)
    if progress.phase != RUNNING or not progress.settled_ms or progress.is_approved or not is_step:
        return ()
    step = strategy.steps[progress.step]
    if step.kind != "analysis":
        return ()
    return tuple(each for each in strategy.checks if not step.checks or each.name in step.checks)


def key_of(check: CheckSpec, progress: Progress) -> CheckKey:
    return CheckKey(wave=progress.wave, step=progress.step, settled_ms=progress.settled_ms, name=check.name)


def due_checks(strategy: Strategy, progress: Progress, rows: Iterable[KnownCheck], now_ms: int) -> tuple[DueCheck, ...]:
    """What to ask now."""
    known = _by_key(rows)
    found = (
        DueCheck(check=check, key=key, known=known.get(key))
        for check in checks_of(strategy, progress)
        for key in (key_of(check, progress),)
    )
    return tuple(each for each in found if each.known is None or each.known.due_ms <= now_ms)


def answered(known: KnownCheck, check: CheckSpec, answer: CheckAnswer, now_ms: int) -> KnownCheck:
    """The check after an answer that came now. While there is none, the one before counts."""
    if answer.again_s:
        reason = known.reason if known.asked_ms else answer.reason
        return replace(known, due_ms=now_ms + round(answer.again_s * 1000), reason=reason)
    failures = {True: 0, False: known.failures + 1, None: known.failures}[answer.passed]
    return replace(
        known, asked_ms=now_ms, due_ms=now_ms + round(check.interval_s * 1000), passed=answer.passed,
        failures=failures, reason=answer.reason, numbers=answer.numbers,
    )  # fmt: skip


def check_facts(strategy: Strategy, progress: Progress, rows: Iterable[KnownCheck]) -> CheckFacts:
    """Why the rollout fails by a check, and which of the step's checks have not passed yet."""
    known = _by_key(rows)
    failed, waits = "", list[str]()
    for check in checks_of(strategy, progress):
        asked = known.get(key_of(check, progress))
        if asked is not None and asked.failures >= check.failures and not failed:
            times = f" {asked.failures} times in a row" if asked.failures > 1 else ""
            failed = f"check {check.name} failed{times}: {asked.reason}"
        if asked is None or not asked.asked_ms:
            why = f": {asked.reason}" if asked is not None and asked.reason else ""
            waits.append(f"check {check.name} has not answered yet{why}")
        elif asked.passed is None:
            waits.append(f"check {check.name} is inconclusive: {asked.reason}")
        elif not asked.passed:
            waits.append(f"check {check.name} has not passed: {asked.reason}")
    return CheckFacts(failed=failed, waits_for="; ".join(waits))


def _by_key(rows: Iterable[KnownCheck]) -> Mapping[CheckKey, KnownCheck]:
    return {each.key: each for each in rows}
