"""What a relay keeps while the control plane is away, and whom it goes on with."""

from __future__ import annotations

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.control.relay.outbox import Forward, Outbox, Sender
from shoal.control.relay.roster import Roster
from shoal.sync.keys import Place, StreamKind
from shoal.wire.fleet.v1 import cluster_pb as pb

PLACE = Place("c1", "default")


def sender(cluster: str = "c1", epoch: int = 1) -> Sender:
    return Sender(pb.Identity(cluster=cluster, region="eu", shard="default", agent="a", epoch=epoch), "token")


def report(key: str, replicas: int = 0) -> pb.DeploymentReport:
    return pb.DeploymentReport(key=key, available_replicas=replicas)


def drained(outbox: Outbox) -> list[Forward]:
    found = []
    while (forward := outbox.take()) is not None:
        outbox.done(forward)
        found.append(forward)
    return found


def test_of_each_object_the_newest_report_goes_in_the_order_of_sequences_and_the_heartbeat_last() -> None:
    outbox, one = Outbox(10), sender()
    outbox.put_heartbeat(one, pb.HeartbeatRequest(software="old"))
    outbox.put(one, StreamKind.DEPLOYMENTS, 1, [report("a", 1), report("b", 1)])
    outbox.put(one, StreamKind.DEPLOYMENTS, 3, [report("c", 3)])
    outbox.put(one, StreamKind.DEPLOYMENTS, 2, [report("a", 2), report("c", 2)])
    outbox.put_heartbeat(one, pb.HeartbeatRequest(software="new"))
    letters = drained(outbox)
    reports = [[(each.key, each.available_replicas) for each in forward.reports] for forward in letters]
    assert reports == [[("b", 1)], [("a", 2)], [("c", 3)], []]
    assert [forward.sequence for forward in letters] == [1, 2, 3, 0]
    assert letters[-1].heartbeat is not None and letters[-1].heartbeat.software == "new"
    assert len(outbox) == 0 and not outbox.waiting(PLACE)


def test_one_place_is_worked_on_by_one_and_what_comes_meanwhile_is_not_lost() -> None:
    outbox, one = Outbox(10), sender()
    outbox.put(one, StreamKind.DEPLOYMENTS, 1, [report("a", 1)])
    forward = outbox.take()
    assert forward is not None and outbox.take() is None and outbox.waiting(PLACE)
    outbox.put(one, StreamKind.DEPLOYMENTS, 2, [report("a", 2)])
    outbox.done(forward)
    assert [each.reports[0].available_replicas for each in drained(outbox)] == [2]
    outbox.put(one, StreamKind.SENTINELS, 3, [pb.SentinelReport(key="s")])
    again = outbox.take()
    assert again is not None
    outbox.later(again)
    assert [forward.stream for forward in drained(outbox)] == [StreamKind.SENTINELS]


def test_a_full_outbox_refuses_new_objects_and_still_takes_newer_reports_of_known_ones() -> None:
    outbox, one = Outbox(2), sender()
    assert outbox.put(one, StreamKind.DEPLOYMENTS, 1, [report("a"), report("b")])
    assert not outbox.put(one, StreamKind.DEPLOYMENTS, 2, [report("a", 2), report("c")]), "all or nothing"
    assert outbox.put(one, StreamKind.DEPLOYMENTS, 3, [report("a", 3)])
    assert [forward.sequence for forward in drained(outbox)] == [1, 3]


def test_what_a_replaced_agent_said_is_forgotten() -> None:
    outbox = Outbox(10)
    outbox.put(sender(epoch=1), StreamKind.DEPLOYMENTS, 9, [report("a", 1), report("b", 1)])
    outbox.put(sender(epoch=2), StreamKind.DEPLOYMENTS, 1, [report("a", 2)])
    outbox.put_heartbeat(sender(epoch=1), pb.HeartbeatRequest())
    outbox.forget(PLACE, 1)
    assert [[each.available_replicas for each in forward.reports] for forward in drained(outbox)] == [[2]]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("abc"), st.booleans()), max_size=25))
def test_whatever_fails_in_between_the_newest_of_every_object_arrives_and_never_an_older_one_after_it(
    steps: list[tuple[str, str, bool]],
) -> None:
    outbox, heard, newest = Outbox(100), dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for number, (cluster, key, arrives) in enumerate(steps, 1):
        outbox.put(sender(cluster), StreamKind.DEPLOYMENTS, number, [report(key, number)])
        newest[cluster, key] = number
        forward = outbox.take()
        if forward is not None and arrives:
            for each in forward.reports:
                where = forward.sender.identity.cluster, each.key
                assert heard.get(where, 0) < each.available_replicas
                heard[where] = each.available_replicas
            outbox.done(forward)
        elif forward is not None:
            outbox.later(forward)
    for forward in drained(outbox):
        for each in forward.reports:
            heard[forward.sender.identity.cluster, each.key] = each.available_replicas
    assert heard == newest and len(outbox) == 0


def test_alone_a_relay_serves_whom_the_control_plane_has_admitted_and_nobody_else() -> None:
    roster = Roster()
    with pytest.raises(ConnectError) as caught:
        roster.check(PLACE, 1, "d1")
    assert caught.value.code is Code.UNAVAILABLE
    roster.joined(PLACE, 1, b"key", "d1")
    roster.check(PLACE, 1, "d1")
    for epoch, digest in ((1, "other"), (2, "d1"), (0, "d1")):
        with pytest.raises(ConnectError) as caught:
            roster.check(PLACE, epoch, digest)
        assert caught.value.code is Code.UNAVAILABLE
    roster.joined(PLACE, 2, b"other key", "d2")
    with pytest.raises(ConnectError, match="fenced"):
        roster.check(PLACE, 1, "d1")
    roster.refused(PLACE, "d2")
    with pytest.raises(ConnectError):
        roster.check(PLACE, 2, "d2")


def test_another_key_is_another_owner_and_the_same_key_is_not() -> None:
    roster = Roster()
    roster.joined(PLACE, 1, b"key", "d")
    first = roster.owner(PLACE, 1)
    roster.joined(PLACE, 2, b"key", "d")
    assert roster.owner(PLACE, 2) == first
    roster.joined(PLACE, 3, b"other", "d")
    assert roster.owner(PLACE, 3) != first
    roster.admitted(PLACE, 4, "d")
    assert roster.owner(PLACE, 4) not in (first, roster.owner(PLACE, 3)), "joined elsewhere: the key is not known"


def test_the_times_of_an_object_go_with_its_newest_report() -> None:
    outbox, one = Outbox(10), sender()
    outbox.put(one, StreamKind.DEPLOYMENTS, 1, [report("a"), report("b")], [pb.HopTimes(key="a", received_ms=1)])
    outbox.put(one, StreamKind.DEPLOYMENTS, 2, [report("a")], [pb.HopTimes(key="a", received_ms=2)])
    assert [[each.received_ms for each in forward.times] for forward in drained(outbox)] == [[], [2]]
