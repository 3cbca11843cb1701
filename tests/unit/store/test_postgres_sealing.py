"""Sealed entries: who opens them, what a changed one is worth, and that no nonce is used twice."""

from __future__ import annotations

from random import Random

import pytest

from shoal.store.postgres.sealing import EventKeys, NotSealed
from shoal.testing.seeded import seeded_bytes

HEAD_BYTES = 37
PARTS = [b"one", b"", b"three"]


def keys(*numbers: int, seed: int = 1) -> EventKeys:
    made = EventKeys(seeded_bytes(seed))
    made.use({number: bytes([number]) * 32 for number in numbers})
    return made


def test_a_server_with_the_key_opens_what_another_has_sealed() -> None:
    seal, sealed = keys(1, seed=1).seal(b"here", PARTS)
    assert [len(part) for part in sealed] == [3, 0, 5]
    assert not set(sealed) & {b"one", b"three"}
    assert keys(1, 2, seed=2).open(seal, b"here", sealed) == PARTS


def test_nothing_can_be_changed_moved_or_used_elsewhere() -> None:
    one = keys(1)
    seal, sealed = one.seal(b"here", PARTS)
    for number in range(len(seal)):
        with pytest.raises(NotSealed):
            one.open(seal[:number] + bytes([seal[number] ^ 1]) + seal[number + 1 :], b"here", sealed)
    whole = b"".join(sealed)
    for context, parts in (
        (b"there", sealed),
        (b"her", sealed),
        (b"here", [whole[:4], b"", whole[4:]]),
        (b"here", [*sealed[:2], sealed[2][:-1]]),
        (b"here", [*sealed, b""]),
        (b"here", []),
        (b"here", PARTS),
    ):
        with pytest.raises(NotSealed):
            one.open(seal, context, parts)
    for short in (b"", seal[:-1], seal + b"\0"):
        with pytest.raises(NotSealed):
            one.open(short, b"here", sealed)
    with pytest.raises(NotSealed):
        keys(2).open(seal, b"here", sealed)


def test_an_unknown_key_is_asked_for() -> None:
    seal, sealed = keys(1, 2).seal(b"", PARTS)
    old = keys(1)
    assert not old.stale
    with pytest.raises(NotSealed, match="unknown key"):
        old.open(seal, b"", sealed)
    assert old.stale


def test_no_sender_uses_a_nonce_twice_and_no_two_servers_or_keys_share_a_sender() -> None:
    rounds = Random(1).sample(range(2, 40), 6)
    heads: list[bytes] = []
    for seed in (1, 2):
        one = keys(1, seed=seed)
        for number in sorted(rounds):
            heads += [one.seal(b"", [])[0][:HEAD_BYTES] for _ in range(50)]
            one.use({number - 1: bytes(32), number: bytes([number]) * 32})
    assert len(set(heads)) == len(heads) == 600
    assert len({head[1:25] for head in heads}) == 12
