"""Counts what tests of faults did: faults injected, operations checked, violations found, seeds used.

Harnesses count here by themselves; a test run prints the sums (``tests/chaos/conftest.py``) or asserts them:

    before = TALLY.faults
    ...
    assert TALLY.faults > before, "the test broke something"
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    faults: int = 0
    checked: int = 0
    violations: int = 0
    seeds: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        seeds = ", ".join(sorted(self.seeds)) or "none"
        return (
            f"{self.faults} faults injected, {self.checked} operations checked, {self.violations} violations; "
            f"seeds: {seeds}"
        )


TALLY = Tally()
"""That of this process."""
