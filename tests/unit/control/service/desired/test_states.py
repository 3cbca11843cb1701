"""The cache of encoded states."""

from __future__ import annotations

from shoal.control.service.desired.render import EncodedDeployment
from shoal.control.service.desired.states import StateCache


def test_a_state_is_found_by_what_was_read_and_by_nothing_else() -> None:
    cache, one = StateCache(), EncodedDeployment(b"one")
    cache.put(("dep_1", '{"a": 1}'), one)
    assert cache.get(("dep_1", '{"a": 1}')) is one
    assert cache.get(("dep_1", '{"a": 2}')) is None


def test_a_driver_that_decodes_documents_costs_memory_for_nothing_and_breaks_nothing() -> None:
    cache = StateCache()
    cache.put(("dep_1", {"a": 1}), EncodedDeployment(b"one"))
    assert cache.get(("dep_1", {"a": 1})) is None


def test_the_cache_of_states_is_bounded_and_the_oldest_go() -> None:
    cache = StateCache(keep=20)
    for number in range(25):
        cache.put(number, EncodedDeployment(b"%d" % number))
    assert [number for number in range(25) if cache.get(number) is not None] == [*range(5, 25)]
