"""The hash and the ring that slots are chosen with."""

from __future__ import annotations

from shoal.sharding.ring import Ring, hash32, slot_of_key


def test_the_hash_never_changes():
    """Other managers, and objects that carry their slot, rely on it."""
    assert hash32("example.com/Website/default/a") == 0xE5726062
    assert slot_of_key("example.com/Website/default/a") == 0xE5726062 >> 22


def test_the_ring_does_not_depend_on_the_order_of_the_shards():
    assert Ring(["a", "b", "c"]).owners() == Ring(["c", "a", "b"]).owners()
    assert Ring([]).preferred(3) == ""
    assert sorted(Ring(["a", "b", "c"]).successors(17)) == ["a", "b", "c"]
