"""``shoal checks`` against a served navigator."""

from __future__ import annotations

from answers_world import Shoal


def test_checks_are_saved_run_and_removed(shoal: Shoal) -> None:
    assert shoal("checks", "run").out.startswith("no checks")
    assert shoal("checks", "save", "crash", "pods where status = CrashLoopBackOff").code == 0
    assert shoal("checks", "save", "up", "pods where ready", "--some").code == 0
    ran = shoal("checks", "run")
    assert ran.code == 1
    assert [row[:3] for row in ran.rows()[1:3]] == [["crash", "failed", "2"], ["up", "ok", "4"]]
    assert shoal("checks", "run", "up").code == 0
    assert "did you mean" in shoal("checks", "save", "bad", "pds").err
    assert shoal("checks", "remove", "crash").code == 0
    assert shoal("checks", "remove", "up").code == 0
    assert shoal("checks", "list").out == "no checks\n"
