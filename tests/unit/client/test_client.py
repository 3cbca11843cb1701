"""The client above the transport: coming back when the server says so, fenced writes, answers that are no Status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from shoal.base.clock import FakeClock
from shoal.client import Client, Fence, LostLease, ResourceType, RetryAfter, builtin
from shoal.client.transport import Reply
from shoal.errors import Forbidden, InternalError, NotFound, ServiceUnavailable, TooManyRequests

BUSY = Reply(429, {"retry-after": "2"}, b"")
FINE = Reply(200, {}, b"{}")


class Scripted:
    """Gives the replies in turn, the last one for ever; remembers what was sent."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.sent: list[tuple[str, str, dict[str, str]]] = []

    async def request(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        self.sent.append((method, target, dict(headers or {})))
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


async def test_a_busy_server_is_asked_again_when_it_said(clock: FakeClock) -> None:
    transport = Scripted(BUSY, Reply(503, {"retry-after": "3"}, b""), FINE)
    client = Client(transport, clock=clock)  # type: ignore[arg-type]
    asking = asyncio.create_task(client.request("POST", "/x", body={}), name="asking")
    await clock.advance(1.9)
    assert len(transport.sent) == 1
    await clock.advance(0.1)
    assert len(transport.sent) == 2
    await clock.advance(3)
    assert await asking == {}


async def test_patience_with_a_busy_server_has_a_limit(clock: FakeClock) -> None:
    transport = Scripted(BUSY)
    client = Client(transport, clock=clock, retry_after=RetryAfter(attempts=3))  # type: ignore[arg-type]
    asking = asyncio.create_task(client.request("GET", "/x"), name="asking")
    await clock.advance(100)
    with pytest.raises(TooManyRequests) as raised:
        await asking
    assert raised.value.retry_after_s == 2
    assert len(transport.sent) == 3


@pytest.mark.parametrize("headers", [{}, {"retry-after": "3600"}, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}])
async def test_without_a_sensible_delay_the_answer_is_final(clock: FakeClock, headers: dict[str, str]) -> None:
    transport = Scripted(Reply(503, headers, b""))
    with pytest.raises(ServiceUnavailable):
        await Client(transport, clock=clock).request("GET", "/x")  # type: ignore[arg-type]
    assert len(transport.sent) == 1


async def test_an_eviction_that_a_budget_forbids_is_the_callers_to_repeat(clock: FakeClock) -> None:
    transport = Scripted(BUSY)
    pods = Client(transport, clock=clock).of(builtin("pods"))  # type: ignore[arg-type]
    with pytest.raises(TooManyRequests):
        await pods.evict("p", "default")
    assert len(transport.sent) == 1


async def test_a_fenced_write_carries_the_fence_and_a_read_does_not(clock: FakeClock) -> None:
    transport = Scripted(FINE)
    fence = Fence("kube-system", "scheduler", "a", clock=clock)
    client = Client(transport, clock=clock).fenced(fence)  # type: ignore[arg-type]
    fence.begin(4, deadline_s=10)
    await client.request("PATCH", "/x", body={})
    await client.request("GET", "/x")
    assert transport.sent[0][2]["shoal-fence"] == "kube-system/scheduler;a;4"
    assert "shoal-fence" not in transport.sent[1][2]


async def test_a_write_past_the_deadline_is_not_sent(clock: FakeClock) -> None:
    transport = Scripted(FINE)
    fence = Fence("kube-system", "scheduler", "a", clock=clock)
    client = Client(transport, clock=clock, fence=fence)  # type: ignore[arg-type]
    with pytest.raises(LostLease):
        await client.request("POST", "/x", body={})
    fence.begin(1, deadline_s=10)
    await clock.advance(9.9)
    await client.request("POST", "/x", body={})
    await clock.advance(0.1)
    with pytest.raises(LostLease):
        await client.request("DELETE", "/x")
    fence.extend(30)
    await client.request("DELETE", "/x")
    fence.end()
    with pytest.raises(LostLease):
        await client.request("PUT", "/x", body={})
    await client.request("GET", "/x")
    assert [method for method, _, _ in transport.sent] == ["POST", "DELETE", "GET"]


async def test_a_fence_is_checked_again_after_waiting_for_a_busy_server(clock: FakeClock) -> None:
    transport = Scripted(BUSY, FINE)
    fence = Fence("kube-system", "scheduler", "a", clock=clock)
    fence.begin(1, deadline_s=1)
    client = Client(transport, clock=clock, fence=fence)  # type: ignore[arg-type]
    asking = asyncio.create_task(client.request("POST", "/x", body={}), name="asking")
    await clock.advance(2)
    with pytest.raises(LostLease):
        await asking
    assert len(transport.sent) == 1


async def test_a_write_under_way_is_given_up_at_the_deadline(clock: FakeClock) -> None:
    class Hanging:
        async def request(self, *_: object, **__: object) -> Reply:
            await asyncio.Event().wait()
            raise AssertionError

    fence = Fence("kube-system", "scheduler", "a", clock=clock)
    fence.begin(1, deadline_s=5)
    client = Client(Hanging(), clock=clock, fence=fence)  # type: ignore[arg-type]
    asking = asyncio.create_task(client.request("POST", "/x", body={}), name="asking")
    await clock.advance(5)
    with pytest.raises(LostLease, match="outcome is unknown"):
        await asking


async def test_a_write_under_way_goes_on_while_the_lease_is_renewed(clock: FakeClock) -> None:
    answered = asyncio.Event()

    class Slow:
        async def request(self, *_: object, **__: object) -> Reply:
            await answered.wait()
            return FINE

    fence = Fence("kube-system", "scheduler", "a", clock=clock)
    fence.begin(1, deadline_s=5)
    client = Client(Slow(), clock=clock, fence=fence)  # type: ignore[arg-type]
    asking = asyncio.create_task(client.request("POST", "/x", body={}), name="asking")
    await clock.advance(4)
    fence.extend(12)
    await clock.advance(4)
    assert not asking.done()
    answered.set()
    await asking
    answered.clear()
    asking = asyncio.create_task(client.request("POST", "/x", body={}), name="asking")
    await clock.advance(4)  # twelve in all, and not renewed
    with pytest.raises(LostLease):
        await asking


def test_a_late_renewal_does_not_move_the_deadline_back(clock: FakeClock) -> None:
    fence = Fence("n", "l", "a", clock=clock)
    fence.begin(1, deadline_s=10)
    fence.extend(20)
    fence.extend(15)
    assert fence.remaining_s == 20


async def test_errors_without_a_status_are_understood_by_their_code(clock: FakeClock) -> None:
    for status, expected in ((403, Forbidden), (404, NotFound), (502, InternalError)):
        transport = Scripted(Reply(status, {}, b"<html>proxy says no</html>"))
        with pytest.raises(expected, match="proxy says no"):
            await Client(transport, clock=clock).request("GET", "/x")  # type: ignore[arg-type]
    with pytest.raises(InternalError, match="not JSON"):
        await Client(Scripted(Reply(200, {}, b"oops")), clock=clock).request("GET", "/x")  # type: ignore[arg-type]


def test_paths_are_those_of_the_api() -> None:
    pods, nodes = builtin("pods"), builtin("Node")
    assert pods.path() == "/api/v1/pods"
    assert pods.path("a") == "/api/v1/namespaces/a/pods"
    assert pods.path("a", "b", "log") == "/api/v1/namespaces/a/pods/b/log"
    assert nodes.path("", "b") == "/api/v1/nodes/b"
    assert builtin("deployments", "apps").path("a", "b") == "/apis/apps/v1/namespaces/a/deployments/b"
    assert ResourceType("g", "v1", "things").path("a", "x:y") == "/apis/g/v1/namespaces/a/things/x:y"
    for wrong in ("..", "a/b"):
        with pytest.raises(ValueError, match="not a valid path segment"):
            pods.path("a", wrong)
    with pytest.raises(ValueError, match="needs a namespace"):
        pods.path("", "b")


async def test_a_log_is_asked_for_with_its_options_and_comes_as_bytes(clock: FakeClock) -> None:
    class Lines:
        status, headers = 200, {"content-type": "text/plain"}

        async def chunks(self) -> AsyncIterator[bytes]:
            yield b"one\n"
            yield b"two\n"

        async def close(self) -> None:
            pass

    class Logging:
        async def stream(self, method: str, target: str, *, headers: Mapping[str, str]) -> Lines:
            assert (method, headers["accept"]) == ("GET", "*/*")
            assert target == "/api/v1/namespaces/ns/pods/p/log?container=c&follow=true&tailLines=5"
            return Lines()

    pods = Client(Logging(), clock=clock).of(builtin("pods"))  # type: ignore[arg-type]
    reply = await pods.log("p", "ns", container="c", follow=True, tail_lines=5)
    assert b"".join([piece async for piece in reply.chunks()]) == b"one\ntwo\n"
