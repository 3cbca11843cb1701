from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.store import Key
from shoal.store.ordered import OrderedKeys

_KEYS = st.builds(Key, st.just("pods"), st.sampled_from(["", "a", "a-b", "b"]), st.sampled_from("abcdefgh"))


class ShortKeys(OrderedKeys):
    """Becomes a SortedList early."""

    list_limit = 3


@settings(max_examples=200, deadline=None)
@given(st.lists(_KEYS, min_size=1, max_size=60), st.sampled_from(["", "a", "b", "none", None]), st.integers(-20, 60))
def test_agrees_with_a_sorted_list_at_any_size(toggles: list[Key], namespace: str | None, last: int) -> None:
    keys, model = ShortKeys(), set[Key]()
    for key in toggles:
        if key in model:
            keys.remove(key)
            model.discard(key)
        else:
            keys.add(key)
            model.add(key)
    after = None if last < 0 else toggles[last % len(toggles)][1:]
    start, stop = keys.bounds("pods", namespace, after)
    expected = sorted(key for key in model if namespace in (None, key.namespace) and (after is None or key[1:] > after))
    assert list(keys.slice(start, stop)) == expected and stop - start == len(expected)
    assert len(keys) == len(model)
    assert list(ShortKeys(sorted(model)).slice(0, len(model))) == sorted(model)
