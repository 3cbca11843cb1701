"""The checker finds what it is there to find, and nothing else."""

from __future__ import annotations

from pathlib import Path

from shoal.testing.exclusion import Accepted, journal_to, read_journals, violations


def test_a_write_of_an_earlier_epoch_after_a_later_one_is_found() -> None:
    writes = [Accepted("a", 1, 5, "x"), Accepted("a", 2, 6, "y"), Accepted("a", 3, 5, "x", "Website/s")]
    (found,) = violations(writes)
    assert "x wrote revision 3 in epoch 5 after y had written revision 2 in epoch 6" in found


def test_the_order_is_that_of_the_server_not_of_the_journals() -> None:
    assert violations([Accepted("a", 2, 6), Accepted("a", 1, 5)]) == []


def test_objects_do_not_mind_each_others_epochs() -> None:
    assert violations([Accepted("a", 1, 6), Accepted("b", 2, 5)]) == []


def test_journals_are_read_back_also_when_one_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x"
    note = journal_to(path, "x", config="sites")
    note("uid", {"kind": "Website", "metadata": {"name": "s", "resourceVersion": "7"}}, 5)
    path.write_bytes(path.read_bytes() + b'["uid", 8,')
    assert list(read_journals([path])) == [Accepted("uid", 7, 5, "x", "Website/s")]
