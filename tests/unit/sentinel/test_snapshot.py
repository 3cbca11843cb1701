"""What a gateway keeps for its next start is what it served, for it alone, and nothing that it does not need."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.base.clock import FakeClock
from shoal.crds.sentinel import read_policy, read_route
from shoal.sentinel import snapshot
from shoal.sentinel.config import SentinelConfig
from shoal.sentinel.model import (
    ApiKeyInfo,
    GatewayPolicy,
    GatewayRoute,
    Inputs,
    InstanceEndpoint,
    KeySet,
    PeerGateway,
    ServiceEndpoints,
    ServiceKey,
    Settings,
    TlsSecret,
)

SETTINGS = Settings(entry_secret="entry", zone="a", limits_socket="/run/limits.sock")
BACKEND = {"deployment": "dep_1", "namespace": "shop", "service": "web", "port": 8080, "weight": 7}
ROUTE = {"environment": "env_1", "host": "shop.example", "backends": [BACKEND], "tls": {"secret": "shop"}, "retries": 0}
POLICY = {"environment": "env_1", "match": [{"method": ["GET"]}], "keyAuth": {"locations": [{"bearer": {}}]}}
INPUTS = Inputs(
    settings=SETTINGS,
    routes={
        "web": GatewayRoute(name="web", alias="Web", environment="env_1", host="shop.example", spec=read_route(ROUTE)),
        "bad": GatewayRoute(name="bad", environment="env_1", host="bad.example", fault="it cannot be read"),
    },
    policies={"keys": GatewayPolicy(name="keys", environment="env_1", routes=("web",), spec=read_policy(POLICY))},
    endpoints={
        ServiceKey("shop", "web"): ServiceEndpoints(
            endpoints=(
                InstanceEndpoint(address="10.0.0.1", port=80, zone="a"),
                InstanceEndpoint(address="::1", port=80, draining=True),
            )
        )
    },
    tls={
        name: TlsSecret(name=name, certificate=b"crt", key=f"key of {name}".encode(), authority=b"\xff\x00")
        for name in ("shop", "entry", "unused")
    },
    keys={
        "env_1": KeySet(
            environment="env_1",
            keys=(ApiKeyInfo(id="k", digest="ab", subject="é", permissions=frozenset({"x"}), meta={"a": [1, None]}),),
        )
    },
    peers=(PeerGateway(region="us", addresses=("192.0.2.1:8043",), distance=3, healthy=False),),
    issuers={"https://issuer.example": "https://issuer.example/keys"},
)


def config(folder: Path, **fields: object) -> SentinelConfig:
    given = {"name": "sentinel-eu", "environment": "env_1", "state": folder / "state", "redis_url": "redis://:pw@h/0"}
    return SentinelConfig(**{**given, **fields})  # type: ignore[arg-type]


async def keep(folder: Path, inputs: Inputs = INPUTS) -> Path:
    keeper = snapshot.SnapshotWriter(config(folder), clock=FakeClock())
    keeper.keep(inputs)
    await keeper.write()
    return folder / "state" / snapshot.FILE


async def test_what_is_read_is_what_was_kept_with_the_certificates_that_are_used(tmp_path: Path) -> None:
    await keep(tmp_path)
    found = snapshot.read(config(tmp_path))
    assert found is not None and found.zone == "a"
    used = {name: INPUTS.tls[name] for name in ("shop", "entry")}
    assert found.inputs(SETTINGS) == replace(INPUTS, tls=used)


async def test_the_file_is_private_and_has_neither_passwords_nor_unused_secrets(tmp_path: Path) -> None:
    path = await keep(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == [snapshot.FILE]
    text = path.read_text()
    assert "redis" not in text and "unused" not in text and "limits.sock" not in text


@pytest.mark.parametrize("fields", [{"name": "other"}, {"environment": "env_2"}, {"state": None}])
async def test_a_file_of_another_gateway_is_not_used(tmp_path: Path, fields: dict[str, object]) -> None:
    await keep(tmp_path)
    assert snapshot.read(config(tmp_path, **fields)) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 99, "gateway": "sentinel-eu"}'])
async def test_a_file_that_cannot_be_read_is_as_good_as_none(tmp_path: Path, content: bytes) -> None:
    (await keep(tmp_path)).write_bytes(content)
    assert snapshot.read(config(tmp_path)) is None


async def test_what_was_kept_is_used_only_when_the_cluster_stays_away() -> None:
    async def main(synced: bool) -> Inputs | None:
        clock, changed = FakeClock(), []
        kept = snapshot.saved(INPUTS, SentinelConfig(name="x"), clock.wall_s())
        restored = snapshot.RestoredState(kept, SETTINGS, clock=clock)
        running = asyncio.create_task(restored.run(lambda: synced, 5.0, lambda: changed.append(1)))
        await clock.advance(4.9)
        assert restored.inputs is None and not running.done()
        await clock.advance(0.2)
        await running
        assert bool(changed) is not synced
        return restored.inputs

    assert await main(True) is None
    assert await main(False) is not None
