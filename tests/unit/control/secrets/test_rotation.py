"""The master key changes while everything runs: nobody notices, nothing is lost, and it can be interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from secrets_world import key_text, lines
from sqlalchemy import func, select

from shoal.base.clock import FakeClock
from shoal.base.ids import Ids
from shoal.control.database.engine import Databases
from shoal.control.database.tables import Audit, Change, Credential, GatewayCertificate, Secret
from shoal.control.domain.fleet import Fleet
from shoal.control.domain.model import Actor
from shoal.control.secrets.masters import FileKeys, GivenKeys, KeysAway, MasterKeyRing, Wrapped, parse_keys
from shoal.control.secrets.rotation import master_keys_in_use, rotate_master, rotate_secrets
from shoal.control.secrets.sealer import EnvelopeSealer
from shoal.errors import ConfigError, ShoalError
from shoal.sync.sealing import open_sealed
from shoal.testing.seeded import seeded_bytes

WHO = Actor("default", "ann", "admin")
AGENT = X25519PrivateKey.generate()
PRIVATE, PUBLIC = AGENT.private_bytes_raw(), AGENT.public_key().public_bytes_raw()
COUNT, BATCH = 25, 10


def ring(*seeds: int) -> MasterKeyRing:
    return parse_keys(" ".join(key_text(seed) for seed in seeds), "a test")


def keys(*seeds: int) -> GivenKeys:
    return GivenKeys(ring(*seeds), "a test")


def sealing(*seeds: int) -> EnvelopeSealer:
    return EnvelopeSealer(keys(*seeds), clock=FakeClock())


class World:
    """A fleet with secrets, and what an agent would read of them."""

    def __init__(self, databases: Databases) -> None:
        self.databases = databases

    async def apply(self, sealer: EnvelopeSealer, kind: str, name: str, **spec: object) -> None:
        fleet = Fleet(self.databases, Ids(), sealer)
        where = {"Project": {}, "Environment": {"project": "shop"}}.get(
            kind, {"project": "shop", "environment": "prod"}
        )
        metadata = {"name": name, **where}
        await fleet.apply(WHO, {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": metadata, "spec": spec})

    async def put(self, sealer: EnvelopeSealer, name: str, value: str) -> None:
        await self.apply(sealer, "Secret", name, values={"VALUE": value})

    async def rows(self) -> dict[str, Secret | Credential]:
        async with self.databases.fleet.reading() as session:
            secrets, credentials = await session.scalars(select(Secret)), await session.scalars(select(Credential))
            return {row.name: row for row in (*secrets, *credentials)}

    async def read(self, sealer: EnvelopeSealer) -> dict[str, str]:
        """Each secret as an agent sees it."""
        found: dict[str, str] = {}
        for name, row in (await self.rows()).items():
            wrapped = await sealer.rewrap(row.data_key, row.master_key, PUBLIC)
            found[name] = open_sealed(wrapped, row.ciphertext, PRIVATE)["VALUE"]
        return found

    async def count(self, table: type) -> int:
        async with self.databases.fleet.reading() as session:
            return (await session.execute(select(func.count()).select_from(table))).scalar_one()


@asynccontextmanager
async def world(tmp_path: Path, count: int = COUNT) -> AsyncIterator[World]:
    """With ``count`` secrets under the first master key."""
    url = f"sqlite:///{tmp_path}/fleet.db"
    databases = await Databases.open({"main": url}, clock=FakeClock(), ids=Ids(seeded_bytes(1)))
    try:
        made, old = World(databases), sealing(1)
        await made.apply(old, "Project", "shop")
        await made.apply(old, "Environment", "prod")
        for n in range(count):
            await made.put(old, f"s{n:03}", f"value {n}")
        yield made
    finally:
        await databases.close()


EXPECTED = {f"s{n:03}": f"value {n}" for n in range(COUNT)}


async def test_every_secret_moves_and_agents_notice_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        before, position, changes = (
            await made.rows(),
            await made.databases.fleet.position(),
            await made.count(Change),
        )
        done = await rotate_master(made.databases, sealing(2, 1), actor="ann", batch=BATCH)
        assert (done.moved, done.unmoved, done.master_key) == (COUNT, (), await keys(2).current())
        assert await master_keys_in_use(made.databases) == {done.master_key: COUNT}
        assert await made.read(sealing(2)) == EXPECTED  # the old key may go
        for name, row in (await made.rows()).items():
            was = before[name]
            assert (row.ciphertext, row.revision, row.version, row.generation, row.updated_at, row.spec) == (
                was.ciphertext, was.revision, was.version, was.generation, was.updated_at, was.spec,
            )  # fmt: skip
        assert await made.databases.fleet.position() == position
        assert await made.count(Change) == changes


async def test_the_key_of_fingerprints_moves_too_and_the_same_values_are_still_the_same(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as made:
        old = await keys(1).current()
        done = await rotate_master(made.databases, sealing(2, 1), limit=1)
        assert not done.complete and await master_keys_in_use(made.databases) == {done.master_key: 1, old: 0}, (
            "is needed"
        )
        assert (await rotate_master(made.databases, sealing(2, 1))).complete
        assert await master_keys_in_use(made.databases) == {done.master_key: 1}
        before, position = (await made.rows())["s000"], await made.databases.fleet.position()
        await made.put(sealing(2), "s000", "value 0")
        after = (await made.rows())["s000"]
        assert (after.revision, after.version, after.spec) == (before.revision, before.version, before.spec)
        assert await made.databases.fleet.position() == position
        await made.put(sealing(2), "s000", "another value")
        assert (await made.rows())["s000"].revision == before.revision + 1


async def test_the_certificates_of_gateways_move_too(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as made:
        sealed = await sealing(1).seal({"tls.key": "private"})
        async with made.databases.fleet.transaction() as tx:
            tx.session.add(
                GatewayCertificate(
                    id="gwc_1", workspace_id="default", revision=1, authority=b"ca", ciphertext=sealed.ciphertext,
                    data_key=sealed.data_key, master_key=sealed.master_key, shown=True, created_at=1, expires_at=2,
                )
            )  # fmt: skip
        done = await rotate_master(made.databases, sealing(2, 1), actor="ann")
        assert (done.moved, done.unmoved) == (2, ())
        assert await master_keys_in_use(made.databases) == {done.master_key: 2}
        async with made.databases.fleet.reading() as session:
            row = (await session.scalars(select(GatewayCertificate))).one()
        wrapped = await sealing(2).rewrap(row.data_key, row.master_key, PUBLIC)
        assert open_sealed(wrapped, row.ciphertext, PRIVATE) == {"tls.key": "private"}


async def test_secrets_are_read_all_the_while(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        sealer, stop, rounds = sealing(2, 1), asyncio.Event(), 0

        async def reading() -> None:
            nonlocal rounds
            while not stop.is_set():
                assert await made.read(sealer) == EXPECTED
                rounds += 1

        async with asyncio.TaskGroup() as group:
            group.create_task(reading(), name="reading")
            done = await rotate_master(made.databases, sealer, batch=BATCH)
            stop.set()
        assert done.moved == COUNT
        assert rounds > 0


async def test_a_secret_that_is_changed_meanwhile_keeps_the_change(tmp_path: Path) -> None:
    class Interfering(GivenKeys):
        """Somebody applies a secret between reading and writing, with a control plane that has the old key."""

        async def unwrap(self, wrapped: Wrapped) -> bytes:
            data_key = await super().unwrap(wrapped)
            if self.changes:
                await self.changes.pop()
            return data_key

        changes: list[object] = []

    async with world(tmp_path, 3) as made:
        masters = Interfering(ring(2, 1), "a test")
        masters.changes = [made.put(sealing(1), "s001", "changed")]
        done = await rotate_master(made.databases, EnvelopeSealer(masters, clock=FakeClock()))
        assert done.moved == 3
        assert await made.read(sealing(2)) == {"s000": "value 0", "s001": "changed", "s002": "value 2"}


async def test_it_may_be_interrupted_anywhere_and_continues(tmp_path: Path) -> None:
    class Failing(GivenKeys):
        left = 0

        async def unwrap(self, wrapped: Wrapped) -> bytes:
            if self.left == 0:
                raise KeysAway(self.where, "a test")
            self.left -= 1
            return await super().unwrap(wrapped)

    async with world(tmp_path) as made:
        masters = Failing(ring(2, 1), "a test")
        sealer, current = EnvelopeSealer(masters, clock=FakeClock()), await keys(2).current()
        for more, moved in ((13, 13), (9, 22)):
            masters.left = more
            with pytest.raises(KeysAway):
                await rotate_master(made.databases, sealer, batch=BATCH)
            assert (await master_keys_in_use(made.databases))[current] == moved
            assert await made.read(sealing(2, 1)) == EXPECTED
        masters.left = COUNT
        assert (await rotate_master(made.databases, sealer)).moved == COUNT - 22
        audited = await made.count(Audit)
        assert (await rotate_master(made.databases, sealer)).moved == 0  # nothing is left to do
        assert await made.count(Audit) == audited
        assert await made.read(sealing(2)) == EXPECTED


async def test_a_secret_whose_master_key_is_lost_is_named_and_left_and_the_others_move(tmp_path: Path) -> None:
    async with world(tmp_path, 2) as made:
        await made.put(sealing(9), "lost", "gone with its key")
        before = (await made.rows())["lost"]
        done = await rotate_master(made.databases, sealing(2, 1))
        assert done.moved == 2
        (unmoved,) = done.unmoved
        assert (unmoved.name, unmoved.secret_id, unmoved.database) == ("shop/prod/lost", before.id, "main")
        assert await keys(9).current() in unmoved.why
        after = (await made.rows())["lost"]
        assert (after.data_key, after.master_key) == (before.data_key, before.master_key)
        with pytest.raises(ShoalError, match="is not in a test"):
            await made.read(sealing(2))
        assert (await rotate_master(made.databases, sealing(2, 9))).moved == 1  # the key was found again
        assert (await made.read(sealing(2)))["lost"] == "gone with its key"


async def test_the_whole_use_case_with_a_file_and_a_control_plane_that_runs_meanwhile(
    tmp_path: Path, key_file: Path
) -> None:
    async with world(tmp_path, 3) as made:
        running = EnvelopeSealer(FileKeys(key_file), clock=FakeClock())
        command = EnvelopeSealer(FileKeys(key_file), clock=FakeClock())
        await made.put(running, "s003", "value 3")
        done = await rotate_secrets(made.databases, command, actor="ann")
        assert done.moved == 4
        assert (await made.read(running))["s003"] == "value 3"
        await made.put(running, "s004", "value 4")
        assert await master_keys_in_use(made.databases) == {done.master_key: 5}
        newest = parse_keys(lines(key_file)[0], "a test")
        fresh = EnvelopeSealer(GivenKeys(newest, "a test"), clock=FakeClock())  # the old key may go
        assert await made.read(fresh) == {f"s{n:03}": f"value {n}" for n in range(5)}


async def test_where_others_make_the_keys_nothing_moves_before_they_did(tmp_path: Path) -> None:
    async with world(tmp_path, 1) as made:
        with pytest.raises(ConfigError, match="put a new key before the others"):
            await rotate_secrets(made.databases, sealing(1))
        assert (await rotate_secrets(made.databases, sealing(2, 1), new_key=False)).moved == 1


async def test_what_was_done_is_in_the_audit_without_a_secret(tmp_path: Path) -> None:
    async with world(tmp_path, 2) as made:
        done = await rotate_master(made.databases, sealing(2, 1), actor="ann")
        async with made.databases.fleet.reading() as session:
            (row,) = await session.scalars(select(Audit).where(Audit.kind == "MasterKey"))
        assert (row.actor, row.action, row.object_id) == ("ann", "rotate", done.master_key)
        assert row.diff == [{"path": "secrets", "before": 0, "after": 2}]
