"""State that the manager keeps between two passes."""

from __future__ import annotations

from shoal.sharding.manager.memory import Phases


def test_the_age_of_a_phase_is_measured_by_the_observing_manager():
    def instance(phase: str, since: str) -> dict[str, dict[str, str]]:
        return {"metadata": {"name": "a"}, "status": {"phase": phase, "phaseSince": since}}

    phases = Phases()
    long_ago = instance("Pending", "2001-01-01T00:00:00Z")  # by the clock of another
    assert phases.saw(long_ago, 1000.0) == 0.0
    assert phases.saw(long_ago, 1042.0) == 42.0
    assert phases.saw(instance("Failed", "2001-01-01T00:00:00Z"), 1050.0) == 0.0
    assert phases.saw(instance("Failed", "2001-01-01T00:05:00Z"), 1060.0) == 0.0  # again, after it had come back
    phases.forget("a")
    assert phases.saw(long_ago, 2000.0) == 0.0
