"""Health checks of a server: ``/livez``, ``/readyz``, ``/healthz``, and their results as metrics at ``/metrics/slis``.

A check has a name and belongs to some of the three endpoints; each can be asked alone (``/readyz/store``) or left out
(``?exclude=store``). Other parts of the process, such as the scheduler, have checks under their names too. Those are
answered and counted, but do not decide over the endpoint as a whole: a cluster is served while a part of it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shoal.base.metrics import LabelValues, Metrics
from shoal.errors import NotFound

ENDPOINTS = ("healthz", "livez", "readyz")

Check = Callable[[], str]  # the problem; empty: the check passes


@dataclass(frozen=True, slots=True)
class HealthCheck:
    name: str
    check: Check
    endpoints: tuple[str, ...]
    decides: bool = True  # whether the endpoint fails with it


class HealthChecks:
    """The checks of one server. ``metrics`` are those of ``/metrics/slis``."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self._checks: list[HealthCheck] = []
        labels = ("name", "type")
        self.metrics.gauge(
            "kubernetes_healthcheck", "Result of each health check: 1 passes, 0 fails.", labels
        ).follow_each(self._results)
        self._counted = self.metrics.counter(
            "kubernetes_healthchecks_total", "Results of all health checks that were asked for.", (*labels, "status")
        )

    def add(self, name: str, check: Check, endpoints: Sequence[str] = ENDPOINTS) -> None:
        self._add(HealthCheck(name, check, tuple(endpoints)))

    def add_part(self, name: str, check: Check) -> None:
        """The readiness of another part of the process; parts of the same name have one check."""
        same = [each for each in self._checks if each.name == name]
        for each in same:
            self._checks.remove(each)
        checks = [*(each.check for each in same), check]
        self._add(
            HealthCheck(name, lambda: "; ".join(filter(None, (one() for one in checks))), ("readyz",), decides=False)
        )

    def _add(self, check: HealthCheck) -> None:
        self._checks.append(check)
        for endpoint in check.endpoints:
            self._counted.labels(check.name, endpoint, "success")

    def ask(self, path: str, *, verbose: bool = False, excluded: Sequence[str] = ()) -> tuple[bool, str]:
        """Answer ``livez`` or ``livez/CHECK``: whether it passes, and the text for people."""
        endpoint, _, name = path.partition("/")
        asked = [
            each for each in self._checks
            if endpoint in each.endpoints and (each.name == name if name else each.decides)
        ]  # fmt: skip
        if name and not asked:
            raise NotFound(f"health check {name} not found")
        asked = [each for each in asked if each.name not in excluded]
        found = {each.name: self._run(each, endpoint) for each in asked}
        good = not any(found.values())
        if good and not verbose:
            return True, "ok"
        lines = [f"[-]{check} failed: {why}" if why else f"[+]{check} ok" for check, why in found.items()]
        return good, "\n".join([*lines, f"{path} check {'passed' if good else 'failed'}", ""])

    def _run(self, check: HealthCheck, endpoint: str) -> str:
        problem = check.check()
        self._counted.labels(check.name, endpoint, "error" if problem else "success").inc()
        return problem

    def _results(self) -> dict[LabelValues, float]:
        found: dict[LabelValues, float] = {}
        for each in self._checks:
            good = 0.0 if each.check() else 1.0
            found.update({(each.name, endpoint): good for endpoint in each.endpoints})
        return found
