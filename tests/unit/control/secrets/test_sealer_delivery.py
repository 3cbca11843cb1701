"""Secrets on their way through the cluster service: an agent opens what it is sent, and a lost key holds up no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from secrets_world import key_text

from shoal.base.clock import FakeClock
from shoal.control.database.tables import Secret
from shoal.control.domain.model import Sealed
from shoal.control.secrets.masters import GivenKeys, parse_keys
from shoal.control.secrets.rotation import rotate_master
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.sync.sealing import open_sealed
from shoal.testing.fleet import AgentClient, ControlPlane, control_plane
from shoal.wire.fleet.v1 import cluster_pb as pb

VALUES = {"PASSWORD": "hunter2"}
AGENT = X25519PrivateKey.generate()


def sealing(*seeds: int) -> EnvelopeSealer:
    keys = parse_keys(" ".join(key_text(seed) for seed in seeds), "a test")
    return EnvelopeSealer(GivenKeys(keys, "a test"), clock=FakeClock())


class SwitchedSealer:
    """A control plane's sealer that a test can replace."""

    def __init__(self, sealer: EnvelopeSealer) -> None:
        self.current = sealer

    async def seal(self, values: dict[str, str]) -> Sealed:
        return await self.current.seal(values)

    async def rewrap(self, data_key: bytes, master_key: str, public_key: bytes) -> bytes:
        return await self.current.rewrap(data_key, master_key, public_key)


@asynccontextmanager
async def joined(folder: Path, sealer: EnvelopeSealer) -> AsyncIterator[tuple[ControlPlane, AgentClient]]:
    async with control_plane(folder, sealer=SwitchedSealer(sealer)) as control:
        await control.add_cluster("c1", region="eu")
        async with control.agent("c1", "eu", join=False) as agent:
            await agent.join(AGENT.public_key().public_bytes_raw())
            await control.deploy("c1", "first")
            yield control, agent


def use(control: ControlPlane, sealer: EnvelopeSealer) -> None:
    assert isinstance(control.sealer, SwitchedSealer)
    control.sealer.current = sealer


async def store(control: ControlPlane, name: str, sealer: EnvelopeSealer) -> None:
    sealed = await sealer.seal(VALUES)
    async with control.database.transaction() as tx:
        tx.session.add(
            Secret(
                id=f"sec_{name}", workspace_id="ws_1", name=name, labels={}, annotations={}, generation=1, version=1,
                spec={"variables": list(VALUES)}, created_at=tx.now, updated_at=tx.now, project_id="prj_1",
                environment_id="env_1", revision=1, ciphertext=sealed.ciphertext, data_key=sealed.data_key,
                master_key=sealed.master_key,
            )
        )  # fmt: skip


async def asked(agent: AgentClient, key: str) -> pb.Item:
    return await agent.client.get_desired_deployment(
        pb.GetDesiredRequest(identity=agent.identity, key=key), headers=agent.headers
    )


def opened(item: pb.Item) -> list[dict[str, str]]:
    assert item.action is not None
    state = item.action.value
    assert isinstance(state, pb.DeploymentState)
    return [open_sealed(one.wrapped_key, one.ciphertext, AGENT.private_bytes_raw()) for one in state.secrets]


async def test_an_agent_opens_what_it_is_sent_also_after_the_master_key_was_changed(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with joined(tmp_path, sealing(1)) as (control, agent):
            await store(control, "db", sealing(1))
            key = await control.deploy("c1", "web", template={"secrets": ["db"]})
            item = await asked(agent, key)
            assert opened(item) == [VALUES]
            assert b"hunter2" not in item.to_binary()
            assert (await rotate_master(control.databases, sealing(2, 1))).moved == 1
            use(control, sealing(2))
            again = await asked(agent, key)
            assert opened(again) == [VALUES]
            assert again.version == item.version


async def test_a_secret_whose_master_key_is_lost_holds_up_its_own_deployment_only(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with joined(tmp_path, sealing(2)) as (control, agent):
            await store(control, "lost", sealing(9))
            await store(control, "db", sealing(2))
            lost = await control.deploy("c1", "lost", template={"secrets": ["db", "lost"]})
            fine = await control.deploy("c1", "fine", template={"secrets": ["db"]})
            plain = await control.deploy("c1", "plain")
            results = await asyncio.gather(*(asked(agent, key) for key in (lost, fine, plain)), return_exceptions=True)
            refused, with_secret, without = results
            assert isinstance(refused, ConnectError)
            assert refused.code is Code.UNAVAILABLE
            assert isinstance(with_secret, pb.Item)
            assert isinstance(without, pb.Item)
            assert opened(with_secret) == [VALUES]
            use(control, sealing(2, 9))  # the key was found again
            assert opened(await asked(agent, lost)) == [VALUES, VALUES]
