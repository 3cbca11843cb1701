"""Each pod is counted once and completed indexes are exact, whatever pods and controller do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from job_world import Crash, JobWorld

from shoal.controllers.job.indexes import parse_indexes
from shoal.controllers.job.model import MAX_UNCOUNTED

# what happens next: a pass of the controller that ends in a crash after so many writes or not at all, with a cache that
# is behind or not; pods that succeed, fail, are deleted, or are collected
passes = st.tuples(st.just("step"), st.one_of(st.none(), st.integers(0, 6)), st.booleans())
ends = st.tuples(
    st.sampled_from(["Succeeded", "Failed", "delete", "collect", "catch up"]), st.integers(0, 9), st.just(0)
)
histories = st.lists(st.one_of(passes, ends), max_size=60)


def live(world, history):
    indexes = set()
    for kind, number, lag in history:
        if world.finished():
            break
        if kind == "step":
            world.crash_after = number
            try:
                world.step(lag)
            except Crash:
                world.restart()
            world.crash_after = None
        elif kind == "collect":
            world.collect()
        elif kind == "catch up":
            world.stale = {}
        elif active := world.active():
            uid = active[number % len(active)]
            if kind == "delete":
                world.delete(uid)
            else:
                if kind == "Succeeded" and world.job["spec"].get("completionMode") == "Indexed":
                    indexes.add(world.index(uid))
                world.end(uid, kind)
        check(world)
    return indexes


def check(world):
    """At every moment: nothing is counted that has not ended."""
    assert world.counted("failed") <= world.truth("Failed")
    if world.job["spec"].get("completionMode") != "Indexed":
        assert world.counted("succeeded") <= world.truth("Succeeded")


def finish(world, indexes):
    """Let the rest succeed."""
    world.restart()
    for _ in range(200):
        if world.finished():
            break
        for uid in world.active():
            if world.job["spec"].get("completionMode") == "Indexed":
                indexes.add(world.index(uid))
            world.end(uid, "Succeeded")
        for uid, pod in list(world.pods.items()):
            if "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] == "Running":
                world.end(uid, "Failed")
        world.step()
    assert world.finished() == "Complete"
    assert not world.status.get("uncountedTerminatedPods")


@given(histories)
@settings(max_examples=300, deadline=None)
def test_no_pod_is_counted_twice_or_lost(history):
    world = JobWorld(completions=6)
    finish(world, live(world, history))
    assert world.status["succeeded"] == world.truth("Succeeded")
    assert world.status.get("failed", 0) == world.truth("Failed")


@given(histories)
@settings(max_examples=300, deadline=None)
def test_completed_indexes_are_exact(history):
    world = JobWorld(completions=6, completionMode="Indexed")
    indexes = live(world, history)
    shown = set(parse_indexes(world.status.get("completedIndexes"), 6))
    assert shown <= indexes
    finish(world, indexes)
    assert set(parse_indexes(world.status["completedIndexes"], 6)) == indexes == set(range(6))
    assert world.status["succeeded"] == 6
    assert world.status.get("failed", 0) == world.truth("Failed")


@given(histories)
@settings(max_examples=150, deadline=None)
def test_an_index_fails_only_after_its_own_limit(history):
    world = JobWorld(completions=4, parallelism=4, completionMode="Indexed", backoffLimitPerIndex=1)
    live(world, history)
    completed = set(parse_indexes(world.status.get("completedIndexes"), 4))
    failed = set(parse_indexes(world.status.get("failedIndexes"), 4))
    assert not completed & failed
    if world.finished():
        assert completed | failed == set(range(4))
        assert (world.finished() == "Failed") == bool(failed)
        assert world.status.get("failed", 0) == world.truth("Failed") >= 2 * len(failed)


def test_a_status_takes_so_many_pods_at_once_and_the_rest_later():
    world = JobWorld(completions=1300, parallelism=1300)
    for _ in range(3):
        world.step()
    for uid in world.active():
        world.end(uid, "Succeeded")
    world.crash_after = 1
    try:
        world.step()
    except Crash:
        world.restart()
    assert len(world.status["uncountedTerminatedPods"]["succeeded"]) == MAX_UNCOUNTED
    for _ in range(5):
        world.step()
    assert (world.finished(), world.status["succeeded"]) == ("Complete", 1300)
