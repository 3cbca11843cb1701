"""Counts what tests of faults did: faults injected, operations checked, violations found, seeds used.

Harnesses count here by themselves; a test run prints the sums (``shoal.testing.faults``) or asserts them:

    before = TALLY.faults
    ...
    assert TALLY.faults > before, "the test broke something"
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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

    @property
    def empty(self) -> bool:
        return not (self.faults or self.checked or self.violations or self.seeds)

    def as_json(self) -> dict[str, Any]:
        return {
            "faults": self.faults,
            "checked": self.checked,
            "violations": self.violations,
            "seeds": sorted(self.seeds),
        }

    def add(self, other: Mapping[str, Any]) -> None:
        """Add what another process has counted, as ``as_json`` gives it."""
        self.faults += other["faults"]
        self.checked += other["checked"]
        self.violations += other["violations"]
        self.seeds.update(other["seeds"])


TALLY = Tally()
"""That of this process."""


def main(path: str) -> None:
    """Print the sum of a file with a line of JSON for each run of tests (``SHOAL_TALLY_FILE``)."""
    total = Tally()
    for line in Path(path).read_text().splitlines():
        total.add(json.loads(line))
    print(total)


if __name__ == "__main__":
    main(sys.argv[1])
