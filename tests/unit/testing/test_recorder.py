"""The witness itself: a true story raises no objection, and every kind of bug planted in it does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.testing.recorder import Recorder, State, WatchSession

Event = tuple[str, str, int, str]


def _story(recorder: Recorder, *watchers: str) -> list[WatchSession]:
    """Two objects; one is changed and one removed; everybody sees everything."""
    for key, revision, token in (("a", 11, "a1"), ("b", 12, "b1"), ("a", 13, "a2")):
        recorder.acknowledged(key, revision, token)
    events: list[Event] = [
        ("ADDED", "a", 11, "a1"),
        ("ADDED", "b", 12, "b1"),
        ("MODIFIED", "a", 13, "a2"),
        ("DELETED", "b", 14, "b1"),
    ]
    sessions = [recorder.session(name, 10, {}) for name in watchers]
    for session in sessions:
        for event in events:
            session.event(*event)
    recorder.read("reader", 13, 14)
    return sessions


FINAL: dict[str, dict[str, State]] = {"one": {"a": (13, "a2")}, "two": {"a": (13, "a2")}}


def test_a_true_story_has_no_problems() -> None:
    recorder = Recorder()
    _story(recorder, "w1", "w2")
    assert recorder.problems(FINAL) == []


def _drop(session: WatchSession) -> None:
    del session.events[1]


def _drop_the_last(session: WatchSession) -> None:
    del session.events[-1]


def _repeat(session: WatchSession) -> None:
    session.events.insert(2, session.events[1])


def _swap(session: WatchSession) -> None:
    session.events[0], session.events[1] = session.events[1], session.events[0]


def _change_content(session: WatchSession) -> None:
    session.events[2] = ("MODIFIED", "a", 13, "forged")


def _wrong_type(session: WatchSession) -> None:
    session.events[2] = ("ADDED", "a", 13, "a2")


def _from_before(session: WatchSession) -> None:
    session.events.insert(0, ("ADDED", "c", 9, "c1"))


@pytest.mark.parametrize(
    "plant", [_drop, _drop_the_last, _repeat, _swap, _change_content, _wrong_type, _from_before],
    ids=lambda plant: plant.__name__.strip("_"),
)  # fmt: skip
def test_a_planted_bug_in_a_stream_is_found(plant: Callable[[WatchSession], None]) -> None:
    recorder = Recorder()
    first, _ = _story(recorder, "w1", "w2")
    plant(first)
    assert recorder.problems(FINAL)


@pytest.mark.parametrize(
    "final",
    [
        {"one": {}, "two": {}},
        {"one": {"a": (11, "a1")}, "two": {"a": (11, "a1")}},
        {"one": {"a": (13, "forged")}, "two": {"a": (13, "forged")}},
        {"one": {"a": (13, "a2")}, "two": {}},
    ],
    ids=["lost", "gone back", "changed", "servers differ"],
)
def test_a_lost_write_is_found_in_the_end(final: dict[str, dict[str, State]]) -> None:
    recorder = Recorder()
    _story(recorder, "w1")
    assert recorder.problems(final)


def test_a_deletion_that_did_not_last_is_found() -> None:
    recorder = Recorder()
    _story(recorder)
    recorder.removed("b", 12)
    assert recorder.problems(FINAL) == []
    assert recorder.problems({"one": {**FINAL["one"], "b": (12, "b1")}})


def test_a_stale_read_is_found() -> None:
    recorder = Recorder()
    recorder.read("reader", 13, 12)
    assert recorder.problems()


def test_one_revision_given_twice_is_found() -> None:
    recorder = Recorder()
    recorder.acknowledged("a", 5, "a1")
    recorder.acknowledged("b", 5, "b1")
    assert recorder.problems()


def test_a_session_answers_only_for_what_it_watched() -> None:
    recorder = Recorder()
    _story(recorder, "w1")
    late = recorder.session("late", 13, {"a": (13, "a2"), "b": (12, "b1")})
    late.event("DELETED", "b", 14, "b1")
    early = recorder.session("early", 10, {})
    early.event("ADDED", "a", 11, "a1")  # its connection ended here
    assert recorder.problems(FINAL) == []


def test_a_bookmark_promises_that_nothing_is_missing() -> None:
    recorder = Recorder()
    _story(recorder, "w1")
    early = recorder.session("early", 10, {})
    early.event("ADDED", "a", 11, "a1")
    early.progress(12)
    assert recorder.problems(FINAL)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=2, max_size=30), st.data())
def test_any_event_left_out_of_a_finished_session_is_found(writes: list[tuple[str, bool]], data: st.DataObject) -> None:
    recorder = Recorder()
    events: list[Event] = []
    state: dict[str, State] = {}
    for revision, (key, remove) in enumerate(writes, start=1):
        token = f"t{revision}"
        if remove and key in state:
            events.append(("DELETED", key, revision, state.pop(key)[1]))
            continue
        events.append(("MODIFIED" if key in state else "ADDED", key, revision, token))
        state[key] = (revision, token)
        recorder.acknowledged(key, revision, token)
    whole, holed = recorder.session("whole", 0, {}), recorder.session("holed", 0, {})
    hole = data.draw(st.integers(0, len(events) - 1))
    for number, event in enumerate(events):
        whole.event(*event)
        if number != hole:
            holed.event(*event)
    holed.progress(len(writes))
    assert recorder.problems({"one": state})
    holed.events.insert(hole, events[hole])
    assert recorder.problems({"one": state}) == []


def _contended(recorder: Recorder) -> WatchSession:
    """Two clients change one object by turns, and a list shows it in between."""
    session = recorder.session("w", 10, {"a": (5, "a0")})
    for expected, revision, begun_s in ((5, 11, 1.0), (11, 12, 2.0), (12, 14, 3.0)):
        recorder.swapped("a", expected, revision, f"t{revision}", begun_s, begun_s + 0.5)
        session.event("MODIFIED", "a", revision, f"t{revision}")
    recorder.listed("reader", 13, {"a": (12, "t12")})
    return session


def test_swaps_that_follow_on_each_other_and_a_list_of_their_state_have_no_problems() -> None:
    recorder = Recorder()
    _contended(recorder)
    assert recorder.problems() == []
    assert recorder.operations == 7


def test_a_swap_that_overwrote_another_is_found() -> None:
    recorder = Recorder()
    session = _contended(recorder)
    recorder.swapped("a", 12, 15, "lost", 4.0, 4.5)  # 14 came in between
    session.event("MODIFIED", "a", 15, "lost")
    assert recorder.problems() == ["a: 15 was to follow on 12, but 14 came between"]


def test_a_swap_that_is_numbered_before_one_that_had_ended_is_found() -> None:
    recorder = Recorder()
    session = _contended(recorder)
    recorder.swapped("b", 0, 20, "b1", 5.0, 5.5)
    recorder.swapped("c", 0, 19, "c1", 6.0, 6.5)
    session.event("ADDED", "c", 19, "c1")
    session.event("ADDED", "b", 20, "b1")
    assert recorder.problems() == ["c: 19 was written after 20 had been acknowledged"]


@pytest.mark.parametrize("state", [{}, {"a": (11, "t11")}, {"a": (12, "t12"), "b": (9, "b1")}])
def test_a_list_that_is_not_the_state_at_its_revision_is_found(state: dict[str, State]) -> None:
    recorder = Recorder()
    _contended(recorder)
    recorder.listed("liar", 12, state)
    (problem,) = recorder.problems()
    assert problem.startswith("liar: the list at 12 is not the state then")
