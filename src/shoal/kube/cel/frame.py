"""The state of one evaluation: variables, what it has cost so far, and when it must stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal.kube.cel.errors import CostExceeded, EvalError, Interrupted

CHECK_EVERY: Final = 100  # iterations between looks at the caller's clock


class Frame:
    """Slots hold the variables, one per place in the expression that binds one."""

    __slots__ = ("cost", "interrupted", "limit", "slots", "ticks")

    def __init__(self, size: int, limit: int, interrupted: Callable[[], bool] | None) -> None:
        self.slots: list[Any] = [None] * size
        self.cost = 0
        self.limit = limit
        self.ticks = 0
        self.interrupted = interrupted

    def tick(self) -> None:
        """Called once per iteration."""
        if self.cost > self.limit:
            raise CostExceeded
        self.ticks += 1
        if self.ticks % CHECK_EVERY == 0 and self.interrupted is not None and self.interrupted():
            raise Interrupted


Step = Callable[[Frame], Any]


def is_fatal(error: EvalError) -> bool:
    """Whether an error ends the evaluation, whatever operator it meets."""
    return isinstance(error, CostExceeded | Interrupted)
