"""How messages leave: what is compressed, what is packed together, and what is encoded once."""

from __future__ import annotations

import gzip
import os
from typing import Any

import pytest

from shoal.control.service.desired import render
from shoal.control.service.desired.model import DesiredRow
from shoal.control.service.stream.compression import Gzip
from shoal.control.service.stream.outgoing import Outgoing
from shoal.sync.versions import Version
from shoal.wire.fleet.v1 import cluster_pb as pb


@pytest.mark.parametrize("size", [0, 1, 300, 4096, 4097, 70_000])
def test_whatever_its_size_a_message_is_gzip_that_anybody_can_read(size: int) -> None:
    data = os.urandom(size)
    assert gzip.decompress(Gzip().compress(data)) == data
    assert Gzip().decompress(Gzip().compress(data), 1 << 20) == data


def test_a_large_message_gets_smaller() -> None:
    assert len(Gzip().compress(b"a" * 50_000)) < 1000


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


def test_an_item_around_an_encoded_state_is_the_item_itself() -> None:
    row = DesiredRow(
        cluster_id="c", shard="s", key="deployment/dep_1", kind="deployment", object_id="dep_1", action="apply",
        number=7, by_user=True, committed_at=12345, trace="00-t", namespace="n", name="web", gone_at=0,
    )  # fmt: skip
    version = Version("main", 2, 7)
    state = pb.DeploymentState(deployment="dep_1", image="nginx:1" * 50, replicas=3)
    encoded = render.item_bytes(row, version, render.EncodedDeployment(state.to_binary()))
    assert pb.Item.from_binary(encoded).to_json() == render.item(row, version, state).to_json()
