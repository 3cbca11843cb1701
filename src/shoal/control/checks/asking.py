"""Asks a check of any kind."""

from __future__ import annotations

from shoal.control.checks.calls import WorkspaceCalls
from shoal.control.checks.jobs import CheckJobs
from shoal.control.checks.model import CheckContext
from shoal.control.checks.navigator import NavigatorQueries
from shoal.control.checks.plan import CheckAnswer, DueCheck
from shoal.control.checks.prometheus import ask_prometheus
from shoal.control.checks.webhook import ask_webhook
from shoal.control.rollout.strategy import CheckSpec


class CheckAsker:
    def __init__(self, calls: WorkspaceCalls, navigator: NavigatorQueries, jobs: CheckJobs) -> None:
        self._calls = calls
        self._navigator = navigator
        self._jobs = jobs

    async def ask(self, check: CheckSpec, context: CheckContext, due: DueCheck) -> CheckAnswer:
        """Never raises for what another system does: that is inconclusive."""
        match check.kind:
            case "webhook":
                return await ask_webhook(check, context, self._calls)
            case "prometheus":
                return await ask_prometheus(check, context, self._calls)
            case "query":
                return await self._navigator.ask(check, context)
            case "job":
                return await self._jobs.ask(check, context, due)
            case _:  # of a rollout that a newer version began
                return CheckAnswer(passed=None, reason=f"this version knows no checks of the kind {check.kind}")
