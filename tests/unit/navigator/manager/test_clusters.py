"""The freshness of a cluster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.navigator.manager.clusters import Clusters, KnownCluster
from shoal.navigator.manager.index import Index
from shoal.navigator.manager.protocol import EdgeSession, Identified
from shoal.navigator.model import Cluster, Freshness
from shoal.testing.managers import digest_of, edge_message
from shoal.wire.navigator.v1 import navigator_pb as pb


def known(interval_s: float, kinds: tuple[str, ...] = ("pods",)) -> tuple[Clusters, KnownCluster]:
    index = Index()
    clusters = Clusters(index, stale_intervals=3.0, keep_alive_s=1.0)
    claim = Identified(
        cluster="east", edge="e1", metadata={"region": "eu"}, software="", kinds=kinds, interval_s=interval_s,
        max_message_bytes=0,
    )  # fmt: skip
    session = EdgeSession(claim, 1, index.cluster("east"))
    made = clusters.prepared(claim, session, 0)
    clusters.claimed(made, 0.0)
    verification = pb.Verification(digests=[digest_of(kind, {}) for kind in kinds])
    step = session.receive(edge_message("verification", verification, sequence=1))
    session.stored(step)  # type: ignore[arg-type]
    return clusters, made


@given(st.lists(st.floats(0.0, 2.9), min_size=1, max_size=30))
def test_freshness_does_not_flap_while_the_edge_keeps_to_its_interval(gaps: list[float]) -> None:
    """Gaps are in intervals: late, and later than the limit of one interval that flapped."""
    clusters, east = known(interval_s=30.0)
    now_s = 0.0
    for gap in gaps:
        for moment in (now_s, now_s + 30.0 * gap):
            assert clusters.list_(moment)[0].freshness is Freshness.HEALTHY
        now_s += 30.0 * gap
        clusters.heard(east, now_s, round(now_s * 1000))
    assert clusters.list_(now_s + 91.0)[0].freshness is Freshness.STALE


def test_data_is_stale_while_no_kind_can_be_read_and_fresh_while_one_can() -> None:
    clusters, east = known(interval_s=10.0, kinds=("pods", "services", "gateways", "nodes"))
    assert east.session is not None
    states = {"pods": "failing", "services": "synced", "gateways": "missing", "nodes": "forbidden"}

    def told(sequence: int) -> Cluster:
        statuses = [pb.KindStatus(kind=kind, state=state, error=f"no {kind}") for kind, state in states.items()]
        assert east.session is not None
        step = east.session.receive(edge_message("delta", pb.ClusterDelta(statuses=statuses), sequence=sequence))
        east.session.stored(step)  # type: ignore[arg-type]
        found = clusters.get("east", 1.0)
        assert found is not None
        return found

    assert told(2).freshness is Freshness.HEALTHY
    states["services"] = "failing"
    stale = told(3)
    assert stale.freshness is Freshness.STALE and stale.reason in ("no pods", "no services")
    states["services"] = "synced"
    assert (told(4).freshness, told(5).reason) == (Freshness.HEALTHY, "")


def test_freshness_goes_from_initializing_over_healthy_and_stale_to_disconnected() -> None:
    clusters, east = known(interval_s=10.0, kinds=("pods", "services"))
    assert clusters.list_(1.0)[0].freshness is Freshness.HEALTHY
    assert clusters.list_(30.0)[0].freshness is Freshness.HEALTHY
    assert clusters.list_(30.1)[0].freshness is Freshness.STALE
    clusters.lost(east)
    found = clusters.get("east", 31.0)
    assert found is not None and found.freshness is Freshness.DISCONNECTED and found.region == "eu"
    again = EdgeSession(
        Identified(
            cluster="east", edge="e1", metadata={}, software="", kinds=("pods",), interval_s=1.0, max_message_bytes=0
        ),
        2,
        Index().cluster("east"),
    )
    assert not again.complete, "a new claim is initializing until it has been compared"
