"""Whatever happens in between, Envoy ends with the newest good snapshot; checked against a model of Envoy."""

from __future__ import annotations

from envoy_model import BAD, EnvoyModel, a_cluster, a_listener, endpoints, routes_to, snapshot_of
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.sentinel.xds.model import ENDPOINTS, ROUTES, XdsResource

NAMES = ("a", "b", "c")
VERSIONS = st.sampled_from(["1", "2", "3", BAD, f"other-{BAD}"])
GOOD = st.sampled_from(["1", "2", "3"])


@st.composite
def snapshots(draw: st.DrawFn, versions: st.SearchStrategy[str] = VERSIONS) -> dict[str, dict[str, XdsResource]]:
    clusters = draw(st.lists(st.sampled_from(NAMES), unique=True))
    made = [a_cluster(name, draw(versions)) for name in clusters]
    made += [endpoints(name, draw(GOOD)) for name in clusters]
    for name in draw(st.lists(st.sampled_from(("x", "y")), unique=True)):
        named = draw(st.lists(st.sampled_from(clusters), unique=True)) if clusters else []
        made += [a_listener(name, name, draw(versions)), routes_to(name, *sorted(named), version=draw(versions))]
    return snapshot_of(*made)


def steps(versions: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[str, object]]]:
    one = st.one_of(
        st.tuples(st.just("publish"), snapshots(versions)),
        st.tuples(st.sampled_from(["listen", "speak", "crash", "connect"]), st.none()),
        st.tuples(st.just("exchange"), st.sampled_from([1, 2, 5, 40, 40])),
        st.tuples(st.just("pass_time"), st.sampled_from([1.0, 6.0, 40.0])),
    )
    return st.lists(one, max_size=25)


def play(envoy: EnvoyModel, story: list[tuple[str, object]]) -> None:
    for step, argument in story:
        if step == "exchange":
            for _ in range(argument):  # type: ignore[call-overload]
                envoy.speak()
                envoy.listen()
        elif argument is None:
            getattr(envoy, step)()
        else:
            getattr(envoy, step)(argument)


def reachable(snapshot: dict[str, dict[str, XdsResource]]) -> dict[object, str]:
    """What Envoy should have: all of it but routes and endpoints that nothing brings."""
    brought = {ref for of_type in snapshot.values() for one in of_type.values() for ref in one.brings}
    return {
        one.ref: one.version
        for of_type in snapshot.values()
        for one in of_type.values()
        if one.ref.type not in (ENDPOINTS, ROUTES) or one.ref in brought
    }


@settings(max_examples=60, deadline=None)
@given(steps(GOOD), snapshots(GOOD))
def test_envoy_ends_with_the_newest_snapshot(
    story: list[tuple[str, object]], last: dict[str, dict[str, XdsResource]]
) -> None:
    envoy = EnvoyModel()
    play(envoy, story)
    envoy.publish(last)
    envoy.settle()
    assert envoy.versions() == reachable(last)
    assert not envoy.cold
    assert envoy.machine.complete


@settings(max_examples=120, deadline=None)
@given(steps(VERSIONS), snapshots(VERSIONS))
def test_what_envoy_refuses_holds_up_nothing_else(
    story: list[tuple[str, object]], last: dict[str, dict[str, XdsResource]]
) -> None:
    envoy = EnvoyModel()
    play(envoy, story)
    envoy.publish(last)
    envoy.settle()
    have = envoy.versions()
    wanted = reachable(last)
    refused = {one.ref for one in envoy.machine.refusals}
    absent = {name for of_type in last.values() for name in of_type} - {ref.name for ref in have}
    for ref, version in wanted.items():
        owner_missing = (
            ref.type in (ENDPOINTS, ROUTES) and ref not in have and ref.name in absent | {one.name for one in refused}
        )
        if BAD in version:
            assert ref in refused or owner_missing
            assert BAD not in have.get(ref, "")
        elif not owner_missing:
            assert have.get(ref) == version
    assert all(BAD in last[ref.type][ref.name].version for ref in refused)
    if not refused:
        assert have == wanted


@settings(max_examples=40, deadline=None)
@given(st.lists(snapshots(GOOD), min_size=1, max_size=6))
def test_what_has_not_changed_is_never_said_again(published: list[dict[str, dict[str, XdsResource]]]) -> None:
    envoy = EnvoyModel()
    for one in published:
        envoy.publish(one)
        envoy.settle()
    before = len(envoy.said)
    envoy.publish(published[-1])
    envoy.settle()
    assert len(envoy.said) == before
    for first, second in zip(published, published[1:], strict=False):
        envoy.publish(first)
        envoy.settle()
        had, start = envoy.versions(), len(envoy.said)
        envoy.publish(second)
        envoy.settle()
        brought = {ref for one in changed(second, had) for ref in one.brings}  # Envoy asks for these again
        for response in envoy.said[start:]:
            for one in response.resources:
                assert had.get(one.ref) != one.version or one.ref in brought


def changed(snapshot: dict[str, dict[str, XdsResource]], had: dict[object, str]) -> list[XdsResource]:
    return [one for of_type in snapshot.values() for one in of_type.values() if had.get(one.ref) != one.version]
