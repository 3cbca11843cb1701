"""What a store counts: how long commits take, and how many share a batch."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.base.metrics import Distribution
from shoal.store.model import Absent, Op, Put, Require

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
COMMIT_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip


class StoreFigures:
    """``requests`` has the time from the call of ``commit`` to its return, by operation and resource."""

    def __init__(self) -> None:
        self.batch_sizes = Distribution(BATCH_SIZES)
        self.batch_s = Distribution(COMMIT_S)
        self.requests: dict[tuple[str, str], Distribution] = {}

    def written(self, transactions: int, took_s: float) -> None:
        """A batch is durable and visible."""
        self.batch_sizes.observe(transactions)
        self.batch_s.observe(took_s)

    def committed(self, ops: Sequence[Op], requires: Sequence[Require], took_s: float) -> None:
        """The writer of a transaction has its answer; the first operation stands for all."""
        if not ops:
            return
        op, what = ops[0], "delete"
        if type(op) is Put:
            what = "create" if requires and type(requires[0]) is Absent else "update"
        key = what, op.key[0]
        durations = self.requests.get(key)
        if durations is None:
            durations = self.requests[key] = Distribution(COMMIT_S)
        durations.observe(took_s)
