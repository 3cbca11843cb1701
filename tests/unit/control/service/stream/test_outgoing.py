"""How messages are packed."""

from __future__ import annotations

from typing import Any

from shoal.control.service.stream.outgoing import Outgoing


def body(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_messages_that_are_ready_together_leave_together_in_order() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    out = Outgoing(send)
    await out.send({"type": "http.response.start"})
    out.more = True
    await out.send(body(b"a"))
    await out.send(body(b"b"))
    assert len(sent) == 1
    out.more = False
    await out.send(body(b"c"))
    await out.send(body(b"d"))
    assert [message.get("body") for message in sent[1:]] == [b"abc", b"d"]


async def test_what_was_held_back_leaves_before_the_end_of_the_stream_and_when_it_is_much() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    out = Outgoing(send)
    out.more = True
    for _ in range(30):
        await out.send(body(b"x" * 1000))
    assert 1 < len(sent) < 30
    await out.send(body(b"end", more=False))
    whole = b"".join(message["body"] for message in sent)
    assert whole == b"x" * 30_000 + b"end" and sent[-1]["body"] == b"end"
