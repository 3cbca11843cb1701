"""Reports and batches of `shoal apply`."""

from __future__ import annotations

from shoal.cli.fleet.apply import batches, report
from shoal.cli.fleet.documents import ManifestDocument


def test_the_report_of_a_dry_run_says_what_would_change() -> None:
    result = {
        "object": {"kind": "Project", "metadata": {"name": "p"}}, "created": False, "effects": [], "dryRun": True,
        "changed": [{"path": "spec.x", "before": None, "after": "a\nb"}], "warnings": ["careful"],
    }  # fmt: skip
    assert report([result]) == "project p   would be changed\n  spec.x: (none) → 'a\\nb'\n  note: careful\n"
    key = {**result, "created": True, "dryRun": False, "warnings": []}
    key["object"] = {**result["object"], "status": {"key": "shk_1"}}
    assert report([key]) == "project p   created\n  key (shown only once): shk_1\n"


def test_batches_are_limited_in_number_and_size() -> None:
    small = [ManifestDocument({"n": n}, "f") for n in range(1001)]
    assert [len(batch) for batch in batches(small)] == [500, 500, 1]
    large = [ManifestDocument({"text": "x" * 500_000}, "f") for _ in range(3)]
    assert [len(batch) for batch in batches(large)] == [1, 1, 1]
    assert list(batches([])) == []
