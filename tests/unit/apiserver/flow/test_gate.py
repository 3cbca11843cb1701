"""The gate: which requests run at once, wait or are rejected; and that no seat is ever lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.apiserver.flow.config import FlowConfig
from shoal.apiserver.flow.gate import FlowGate, FlowMatch
from shoal.apiserver.flow.levels import Level
from shoal.apiserver.flow.ticket import Ticket
from shoal.base.clock import FakeClock
from shoal.kube.kinds.bootstrap_flowcontrol import flow_schemas, priority_levels

EVERYBODY = ("system:authenticated",)
ROOMY: dict[str, Any] = {"requests_per_second": 1e6, "burst": 1e6, "flow_requests_per_second": 1e6, "flow_burst": 1e6}


class Ticking(FakeClock):
    """Each reading takes ``step_s``, so that an iteration of the loop has a length."""

    step_s = 0.0
    read_s = 0.0  # the time that readings took

    def monotonic(self) -> float:
        self.read_s += self.step_s
        return super().monotonic() + self.read_s


def gate(clock: FakeClock | None = None, **settings_: Any) -> FlowGate:
    made = FlowGate(FlowConfig(**{**ROOMY, **settings_}), clock or FakeClock())
    made.configure(priority_levels(), flow_schemas())
    return made


def match_of(of: FlowGate, user: str = "alice", groups: tuple[str, ...] = EVERYBODY, verb: str = "create") -> FlowMatch:
    return of.match((user, groups, verb, "", "pods", "", "default"))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def fill(of: FlowGate, match: FlowMatch) -> int:
    """Take all seats there are for ``match``."""
    taken = 0
    while of.enter(match):
        taken += 1
    return taken


async def test_seats_are_divided_by_shares_and_lent_seats_are_extra() -> None:
    made = gate(max_requests_in_flight=400, max_mutating_requests_in_flight=200)
    assert {name: level.nominal for name, level in made.levels.items()} == {
        "exempt": 0, "catch-all": 13, "system": 74, "node-high": 98, "leader-election": 25, "workload-high": 98,
        "workload-low": 245, "global-default": 49,
    }  # fmt: skip
    lent = 24 + 24 + 49 + 220  # a third of system's, a quarter of node-high's, half and nine tenths of the workloads'
    assert fill(made, match_of(made)) == 49 + lent
    assert made.enter(match_of(made, "system:kube-controller-manager")), "what was lent is still there for its owner"


async def test_masters_and_probes_pass_however_full_it_is() -> None:
    made = gate(max_requests_in_flight=1, max_mutating_requests_in_flight=1)
    fill(made, match_of(made))
    root = match_of(made, "root", ("system:masters",))
    assert all(made.enter(root) for _ in range(1000))
    assert made.enter(made.match(("system:anonymous", ("system:unauthenticated",), "get", "/livez")))


async def test_a_request_without_a_seat_waits_for_one_that_is_given_back() -> None:
    async with asyncio.timeout(10):
        made = gate()
        match = match_of(made)
        fill(made, match)
        waiting = asyncio.create_task(made.queued(match))
        await settled()
        assert not waiting.done() and made.waiting == 1
        made.leave(match)
        assert await waiting
        assert made.waiting == 0


async def test_a_full_queue_rejects_with_a_reason() -> None:
    async with asyncio.timeout(10):
        made = gate()
        match = match_of(made)
        fill(made, match)
        tasks = [asyncio.create_task(made.queued(match)) for _ in range(6 * 50 + 1)]
        await settled()
        refused = [task for task in tasks if task.done()]
        assert [task.result() for task in refused] == [False]
        assert match.schema.rejected == {"queue-full": 1}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert made.waiting == 0


async def test_a_level_without_queues_refuses_at_once() -> None:
    async with asyncio.timeout(10):
        made = gate()
        stranger = match_of(made, "stranger", ())
        assert stranger.schema.name == "catch-all"
        fill(made, stranger)
        assert not await made.queued(stranger)
        assert stranger.schema.rejected == {"concurrency-limit": 1}


async def test_no_request_waits_longer_than_the_limit() -> None:
    async with asyncio.timeout(10):
        clock = FakeClock()
        made = gate(clock, queue_wait_s=15.0)
        match = match_of(made)
        fill(made, match)
        waiting = asyncio.create_task(made.queued(match))
        await clock.advance(14)
        assert not waiting.done()
        await clock.advance(3)
        assert await waiting is False
        assert match.schema.rejected == {"time-out": 1} and made.waiting == 0


@pytest.mark.parametrize(
    ("many", "one"),
    [("alice", "system:kube-controller-manager"), ("system:kube-controller-manager", "alice")],
)
async def test_a_turn_of_the_loop_that_takes_long_makes_the_rest_wait_and_the_quiet_level_goes_first(
    many: str, one: str
) -> None:
    async with asyncio.timeout(10):
        clock = Ticking()
        made = gate(clock, slice_s=0.005)
        storm, quiet = match_of(made, many), match_of(made, one)
        clock.step_s = 0.001
        entered = 0
        while made.enter(storm):
            entered += 1
        assert 2 <= entered <= 10, "the slice is used up"
        order: list[str] = []

        async def visit(match: FlowMatch, name: str) -> None:
            assert await made.queued(match)
            order.append(name)
            made.leave(match)

        tasks = [asyncio.create_task(visit(storm, "storm")) for _ in range(100)]
        await asyncio.sleep(0)  # the storm waits, and the first turn begins
        tasks.append(asyncio.create_task(visit(quiet, "quiet")))
        await asyncio.gather(*tasks)
        assert order.index("quiet") < 20, order.index("quiet")


async def test_a_waiting_request_whose_handler_is_closed_leaves_the_seat_to_the_next() -> None:
    """Handlers are not tasks: when a client hangs up, its handler is closed and nothing is cancelled."""
    async with asyncio.timeout(10):
        made = gate()
        match = match_of(made)
        fill(made, match)
        closed = made.queued(match)
        closed.send(None)
        other = asyncio.create_task(made.queued(match), name="other")
        await settled()
        closed.close()
        assert made.waiting == 1
        made.leave(match)
        assert await other


async def test_queues_can_change_while_a_request_from_one_runs() -> None:
    level = Level("x")
    queuing = {"queues": 4, "handSize": 1, "queueLengthLimit": 5}
    spec = {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": queuing}}}
    level.configure({"metadata": {"name": "x"}, "spec": spec})
    loop = asyncio.get_running_loop()
    tickets = [Ticket(loop, "flow", "schema", 1, 0.0) for _ in range(3)]
    assert all(level.add(ticket) for ticket in tickets)
    first = level.next()
    assert first is not None
    queuing["queues"] = 2
    level.configure({"metadata": {"name": "x"}, "spec": spec})
    level.charge(first[0], 1.0)
    found = [first[1]]
    while (taken := level.next()) is not None:
        found.append(taken[1])
        level.charge(taken[0], 1.0)
    assert found == tickets and level.waiting == 0


async def test_buckets_count_only_requests_that_had_to_wait() -> None:
    async with asyncio.timeout(10):
        made = gate(requests_per_second=1, burst=3)
        match = match_of(made)
        for _ in range(100):
            assert made.enter(match)
            made.leave(match)
        fill(made, match)
        waiting = [asyncio.create_task(made.queued(match)) for _ in range(5)]
        await settled()
        assert [task.result() for task in waiting if task.done()] == [False, False]
        assert match.schema.rejected == {"rate-limit": 2}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_the_control_plane_has_no_buckets() -> None:
    async with asyncio.timeout(10):
        made = gate(requests_per_second=1, burst=1, flow_burst=1, flow_requests_per_second=1)
        match = match_of(made, "system:kube-controller-manager")
        fill(made, match)
        waiting = [asyncio.create_task(made.queued(match)) for _ in range(50)]
        await settled()
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_wide_requests_take_more_seats() -> None:
    assert [FlowGate.list_width(count) for count in (0, 99, 100, 950, 10**6)] == [1, 1, 2, 10, 10]

    made = gate()
    match = match_of(made)
    assert made.enter(match, 10)
    assert match.level.used == 10
    made.leave(match, 10)
    assert match.level.used == 0


async def test_new_settings_apply_at_once_and_lose_no_request() -> None:
    async with asyncio.timeout(10):
        made = gate()
        match = match_of(made)
        taken = fill(made, match)
        waiting = [asyncio.create_task(made.queued(match)) for _ in range(20)]
        await settled()
        levels = priority_levels()
        for level in levels:
            if level["metadata"]["name"] == "global-default":
                level["spec"]["limited"]["limitResponse"]["queuing"] = {
                    "queues": 2, "handSize": 1, "queueLengthLimit": 5,
                }  # fmt: skip
        made.configure(levels, flow_schemas())
        assert match_of(made) is not match, "what was known of the request is forgotten"
        for _ in range(taken):
            made.leave(match)
        assert all(await asyncio.gather(*waiting))


async def test_a_removed_level_serves_its_waiting_requests_and_new_ones_go_elsewhere() -> None:
    async with asyncio.timeout(10):
        made = gate()
        match = match_of(made)
        taken = fill(made, match)
        waiting = asyncio.create_task(made.queued(match))
        await settled()
        left = [level for level in priority_levels() if level["metadata"]["name"] != "global-default"]
        made.configure(left, flow_schemas())
        assert match_of(made).level.name == "catch-all"
        for _ in range(taken):
            made.leave(match)
        assert await waiting


async def test_without_any_settings_the_mandatory_ones_count() -> None:
    made = FlowGate(FlowConfig(), FakeClock())
    assert match_of(made, "root", ("system:masters",)).level.exempt
    assert match_of(made).level.name == "catch-all" and made.enter(match_of(made))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "leave", "cancel", "turn"]), st.integers(0, 3), st.integers(1, 10)),
        max_size=80,
    )
)
async def test_whatever_happens_seats_add_up(steps: list[tuple[str, int, int]]) -> None:
    async with asyncio.timeout(10):
        made = gate(max_requests_in_flight=20, max_mutating_requests_in_flight=20)
        users = ("alice", "bob", "system:kube-scheduler", "system:node:n")
        inside: list[tuple[FlowMatch, int]] = []
        tasks: list[asyncio.Task[None]] = []

        async def wait(match: FlowMatch, width: int) -> None:
            if await made.queued(match, width):
                inside.append((match, width))

        for step, number, width in steps:
            match = match_of(made, users[number])
            if step == "enter":
                if made.enter(match, width):
                    inside.append((match, width))
                else:
                    tasks.append(asyncio.create_task(wait(match, width)))
            elif step == "leave" and inside:
                made.leave(*inside.pop(number % len(inside)))
            elif step == "cancel" and tasks:
                tasks[number % len(tasks)].cancel()
            else:
                await settled()
            held = {}
            for taken, seats in inside:
                held[taken.level.name] = held.get(taken.level.name, 0) + seats
            assert {name: level.used for name, level in made.levels.items() if level.used} == held
        while tasks or inside:
            while inside:
                made.leave(*inside.pop())
            await settled()
            tasks = [task for task in tasks if not task.done()]
        assert made.waiting == 0 and made.in_flight == [0, 0]
        assert all(level.used == level.waiting == 0 for level in made.levels.values())
