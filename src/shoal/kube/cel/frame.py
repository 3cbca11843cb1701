"""The state of one evaluation: variables, cost so far, and limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from shoal.kube.cel.errors import CostExceeded, EvalError, Interrupted

CHECK_EVERY: Final = 100  # iterations between calls of ``interrupted``


class Frame:
    """Slots hold the variables, one per binding in the expression."""

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
    """Whether no operator absorbs the error."""
    return isinstance(error, CostExceeded | Interrupted)
