"""The stream of a relay: what goes wrong with one place is said to the relay and leaves the other places alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from protobuf import Oneof

from shoal.control.relay.link import Link
from shoal.sync.keys import Place
from shoal.testing.fleet import control_plane
from shoal.wire.fleet.v1 import relay_pb as rpb


async def test_a_place_whose_load_fails_ends_alone_and_the_relay_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with control_plane(tmp_path) as control:
        for name in ("broken", "fine"):
            await control.add_cluster(name, region="eu")
            await control.deploy(name, f"web-{name}")
        request = control.server.loader.request

        def failing(place: Place, keys: Iterable[str], done: Callable[[Any], None], *, urgent: bool) -> Any:
            if place.cluster == "clu_broken":
                raise RuntimeError("a fault of this place")
            return request(place, keys, done, urgent=urgent)

        monkeypatch.setattr(control.server.loader, "request", failing)
        token, _ = await control.tokens.create(kind="relay", name="r1", region="eu")
        link = Link(control.url, control.ca.decode(), lambda: token, call_s=10, correlation="")
        stay = asyncio.Event()

        async def requests() -> Any:
            yield rpb.FollowRequest(request=Oneof("hello", rpb.RelayHello(relay="r1", stream="deployments")))
            for number, name in enumerate(("broken", "fine"), 1):
                said = rpb.Subscribe(channel=number, cluster=name, shard="default")
                yield rpb.FollowRequest(request=Oneof("subscribe", said))
            await stay.wait()

        ended, items = dict[int, str](), set[int]()
        try:
            async with asyncio.timeout(30), aclosing(link.follow(requests())) as events:
                async for event in events:
                    said = event.event
                    assert said is not None
                    if said.field == "channel_ended":
                        ended[said.value.channel] = said.value.code
                    elif said.field == "channel" and b"web-fine" in said.value.event:
                        items.add(said.value.channel)
                    if ended and items:
                        break
        finally:
            stay.set()
            await link.close()
        assert ended == {1: "internal"} and items == {2}
