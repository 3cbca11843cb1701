"""A changed authority reaches agents, edges and the command line of `shoal up`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from shoal.app.authorities import Trusting, follow_authorities, hand_out_authorities
from shoal.base.clock import FakeClock
from shoal.cli.contexts import Context, Contexts, read_contexts, write_contexts


def trusting(folder: Path) -> Trusting:
    for name in ("control", "navigator"):
        (folder / name / "pki").mkdir(parents=True)
        (folder / name / "pki" / "ca.crt").write_text(f"old {name}")
    for name in ("join", "edge"):
        (folder / f"{name}.json").write_text(json.dumps({"url": "https://a", "token": "t", "ca": "old"}))
    mine = Context("up", "https://a", "t", "old control", navigator_ca="old navigator")
    other = Context("other", "https://b", "u", "theirs")
    write_contexts(folder, Contexts({"up": mine, "other": other}, "other"))
    return Trusting(
        control=folder / "control", navigator=folder / "navigator", agents=[folder / "join.json", folder / "missing"],
        edges=[folder / "edge.json"], home=folder, context="up",
    )  # fmt: skip


def held(folder: Path) -> list[str]:
    found = read_contexts(folder)
    joined = [json.loads((folder / f"{name}.json").read_bytes())["ca"] for name in ("join", "edge")]
    assert (found.current, found.known["other"].ca) == ("other", "theirs")
    return [*joined, found.known["up"].ca, found.known["up"].navigator_ca]


async def test_join_files_and_the_context_follow_the_authorities(tmp_path: Path) -> None:
    who, clock = trusting(tmp_path), FakeClock()
    following = asyncio.create_task(follow_authorities(who, clock), name="following")
    try:
        await clock.advance(5)
        assert held(tmp_path) == ["old control", "old navigator"] * 2
        (tmp_path / "control" / "pki" / "ca.crt").write_text("old control, new control")
        await clock.advance(5)
        assert held(tmp_path) == ["old control, new control", "old navigator"] * 2
        assert json.loads((tmp_path / "join.json").read_bytes())["token"] == "t"
    finally:
        following.cancel()


def test_files_that_are_right_are_left_alone(tmp_path: Path) -> None:
    who = trusting(tmp_path)
    hand_out_authorities(who)
    before = {path: path.stat().st_ino for path in tmp_path.iterdir()}
    hand_out_authorities(who)
    assert {path: path.stat().st_ino for path in tmp_path.iterdir()} == before
