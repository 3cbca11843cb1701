"""Placement: never a refused cluster, the same choice however the clusters are listed, and the least loaded one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.control.domain.kinds.app import Toleration
from shoal.control.domain.kinds.places import Capacity, Taint
from shoal.control.domain.placement.model import ClusterFacts, PlacedLoad, PlacementRequest, ShardFacts
from shoal.control.domain.placement.plan import place, refusal, tolerated
from shoal.sync.keys import Place

labels = st.dictionaries(st.sampled_from(["tier", "zone"]), st.sampled_from(["a", "b"]), max_size=2)
taints = st.lists(
    st.builds(Taint, key=st.sampled_from(["gpu", "spot"]), effect=st.sampled_from(["NoSchedule", "PreferNoSchedule"])),
    max_size=2,
).map(tuple)
shards = st.lists(
    st.builds(
        ShardFacts,
        name=st.sampled_from(["s1", "s2", "s3"]),
        agent=st.sampled_from(["joined", "lost", "absent"]),
        deployments=st.integers(0, 5),
    ),
    max_size=3,
    unique_by=lambda shard: shard.name,
).map(tuple)


@st.composite
def clusters(draw: Any) -> list[ClusterFacts]:
    count = draw(st.integers(0, 5))
    return [
        ClusterFacts(
            id=f"clu_{number}",
            name=f"c{number}",
            region=draw(st.sampled_from(["eu", "us"])),
            labels=draw(labels),
            taints=draw(taints),
            capacity=Capacity(deployments=draw(st.none() | st.integers(0, 6))),
            can_schedule=draw(st.booleans()),
            shards=draw(shards),
            load=PlacedLoad(draw(st.integers(0, 6))),
        )
        for number in range(count)
    ]


wants = st.builds(
    PlacementRequest,
    region=st.just("eu"),
    labels=st.dictionaries(st.just("tier"), st.sampled_from(["a", "b"]), max_size=1),
    cel=st.sampled_from(["", "cluster.labels['zone'] == 'a'", "cluster.used.deployments < 3"]),
    tolerations=st.lists(st.builds(Toleration, key=st.just("gpu"), operator=st.just("Exists")), max_size=1).map(tuple),
    current=st.none() | st.builds(Place, st.sampled_from(["clu_0", "clu_1"]), st.sampled_from(["s1", "s2"])),
    home=st.sampled_from(["", "clu_1", "clu_2"]),
)


@settings(max_examples=120, deadline=None)
@given(want=wants, known=clusters())
def test_a_refused_cluster_is_never_chosen_and_each_refusal_is_told(
    want: PlacementRequest, known: list[ClusterFacts]
) -> None:
    found = place(want, known)
    here = {each.name: each for each in known if each.region == want.region}
    assert set(found.reason["considered"]) == set(here)
    assert found.reason["refused"] == {name: why for name, each in here.items() if (why := refusal(want, each))}
    if found.place is None:
        assert set(found.reason["refused"]) == set(here)
        return
    chosen = next(each for each in known if each.id == found.place.cluster)
    shard = next(each for each in chosen.shards if each.name == found.place.shard)
    waits = found.place == want.current and refusal(want, chosen) == "its agent is lost"
    assert waits or (not refusal(want, chosen) and shard.agent != "lost")
    assert chosen.region == want.region
    assert all(chosen.labels.get(key) == value for key, value in want.labels.items())
    assert all(tolerated(taint, want.tolerations) for taint in chosen.taints if taint.effect == "NoSchedule")


@settings(max_examples=60, deadline=None)
@given(want=wants, known=clusters(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_clusters_does_not_matter(
    want: PlacementRequest, known: list[ClusterFacts], order: Any
) -> None:
    shuffled = list(known)
    order.shuffle(shuffled)
    assert place(want, known) == place(want, shuffled)


@settings(max_examples=80, deadline=None)
@given(want=wants, known=clusters())
def test_what_was_placed_stays_when_it_is_placed_again(want: PlacementRequest, known: list[ClusterFacts]) -> None:
    first = place(want, known)
    if first.place is None:
        return
    grown = [
        replace(each, load=each.load.plus(want.size)) if each.id == first.place.cluster else each for each in known
    ]
    again = place(replace(want, current=first.place, cel=""), grown)
    assert again.place == first.place


@settings(max_examples=100, deadline=None)
@given(loads=st.lists(st.integers(0, 20), min_size=1, max_size=6))
def test_of_equals_the_least_loaded_is_taken(loads: list[int]) -> None:
    known = [cluster(f"c{number}", load=PlacedLoad(load)) for number, load in enumerate(loads)]
    found = place(PlacementRequest(region="eu"), known).place
    assert found is not None
    assert found.cluster == f"clu_c{loads.index(min(loads))}"


def cluster(name: str, **fields: Any) -> ClusterFacts:
    given = {"shards": (ShardFacts("s1", "joined"),), "region": "eu", **fields}
    return ClusterFacts(id=f"clu_{name}", name=name, **given)


def chosen(want: PlacementRequest, *known: ClusterFacts) -> str:
    found = place(want, known).place
    return found.cluster.removeprefix("clu_") if found else ""


def test_the_reason_names_what_was_considered_refused_and_why_it_was_chosen() -> None:
    known = [
        cluster("a", labels={"tier": "gold"}, load=PlacedLoad(5)),
        cluster("b", labels={"tier": "gold"}, load=PlacedLoad(2)),
        cluster("c"),
        cluster("d", labels={"tier": "gold"}, can_schedule=False),
    ]
    found = place(PlacementRequest(region="eu", labels={"tier": "gold"}), known)
    assert found.place == Place("clu_b", "s1")
    assert found.reason["considered"] == ["a", "b", "c", "d"]
    assert found.reason["refused"] == {
        "c": "labels do not match: tier=gold",
        "d": "the cluster accepts no new deployments",
    }
    assert found.reason["because"] == "least load of 2 clusters"


def test_a_cluster_whose_agent_is_lost_gets_nothing_new() -> None:
    lost = cluster("a", shards=(ShardFacts("s1", "lost"),))
    assert chosen(PlacementRequest(region="eu"), lost, cluster("b", load=PlacedLoad(100))) == "b"
    assert place(PlacementRequest(region="eu"), [lost]).place is None


def test_what_runs_on_a_lost_cluster_stays_when_nothing_else_takes_it() -> None:
    lost = cluster("a", shards=(ShardFacts("s1", "lost"),))
    here = PlacementRequest(region="eu", current=Place("clu_a", "s1"))
    assert chosen(here, lost) == "a"
    assert chosen(here, lost, cluster("b")) == "b"


def test_capacity_refuses_what_does_not_fit_but_not_what_runs_there() -> None:
    full = cluster("a", capacity=Capacity(cpu_millicores=1000), load=PlacedLoad(1, 800))
    want = PlacementRequest(region="eu", size=PlacedLoad(1, 300))
    assert "not enough cpu: 1100 of 1000" in refusal(want, full)
    assert not refusal(replace(want, current=Place("clu_a", "s1")), full)


def test_load_is_measured_against_capacity() -> None:
    small = cluster("a", capacity=Capacity(deployments=10), load=PlacedLoad(5))
    large = cluster("b", capacity=Capacity(deployments=1000), load=PlacedLoad(50))
    assert chosen(PlacementRequest(region="eu"), small, large) == "b"


def test_apps_of_an_environment_stay_together_where_its_gateway_is() -> None:
    assert chosen(PlacementRequest(region="eu", home="clu_a"), cluster("a", load=PlacedLoad(50)), cluster("b")) == "a"


def test_a_preference_gives_way_when_there_is_no_other() -> None:
    avoided = cluster("a", taints=(Taint("spot", "", "PreferNoSchedule"),))
    assert chosen(PlacementRequest(region="eu"), avoided, cluster("b", load=PlacedLoad(9))) == "b"
    assert chosen(PlacementRequest(region="eu"), avoided) == "a"


def test_an_expression_without_a_value_refuses_and_says_why() -> None:
    why = refusal(PlacementRequest(region="eu", cel="cluster.labels['tier'] == 'gold'"), cluster("a"))
    assert "no such key" in why


def test_the_least_used_shard_of_a_cluster_is_taken() -> None:
    known = cluster(
        "a", shards=(ShardFacts("s1", "joined", 3), ShardFacts("s2", "joined", 1), ShardFacts("s3", "lost"))
    )
    assert place(PlacementRequest(region="eu"), [known]).place == Place("clu_a", "s2")
