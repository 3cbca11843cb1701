"""``shoal changes`` and ``shoal lint``, and the names that they had, against a served navigator."""

from __future__ import annotations

from answers_world import Shoal


def test_differences_of_clusters_are_shown_by_changes_and_diff_leads_there(shoal: Shoal) -> None:
    shown = shoal("changes", "eu-1", "us-1", "--kind", "services")
    old = shoal("diff", "eu-1", "us-1", "--kind", "services")
    assert (old.code, old.out) == (shown.code, shown.out)
    assert old.err.startswith("note: differences between two moments or two clusters are now shown by `shoal changes`")


def test_mistakes_are_shown_by_lint_and_the_old_name_leads_there(shoal: Shoal) -> None:
    shown, old = shoal("lint", "--errors"), shoal("mesh", "mistakes", "--errors")
    assert shown.code == old.code == 1
    assert shown.out == old.out != ""
    assert old.err == "note: `shoal mesh mistakes` is now `shoal lint`\n" + shown.err
