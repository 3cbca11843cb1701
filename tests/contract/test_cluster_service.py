"""The cluster service over TLS, as an agent meets it: joining, streams, syncs, reports, and everything it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError

from shoal.testing.fleet import AgentClient, ControlPlane, control_plane
from shoal.testing.waiting import eventually
from shoal.testing.watching import full_sync, request, watching
from shoal.wire.fleet.v1 import cluster_pb as pb

WAIT_S = 15.0


@asynccontextmanager
async def one_cluster(tmp_path: Path, **options: Any) -> AsyncIterator[tuple[ControlPlane, AgentClient]]:
    async with control_plane(tmp_path, **options) as control:
        await control.add_cluster("c1", region="eu")
        async with control.agent("c1", "eu") as agent:
            yield control, agent


async def becomes(look: Callable[[], Awaitable[Any]], expected: Any) -> None:
    async def is_expected() -> bool:
        return bool(await look() == expected)

    await eventually(is_expected, timeout_s=WAIT_S)


async def test_a_new_agent_gets_everything_and_then_every_change(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            key = await control.deploy("c1", "web", image="nginx:1")
            async with watching(agent) as watch:
                welcome = await watch.until("welcome")
                assert not welcome.resumed and not welcome.observe_only and welcome.reason
                begin, items, keys, end = await full_sync(watch)
                assert begin.count == 1 and keys == {key} and end.cursor
                state = items[key].action.value
                assert (state.image, state.name, state.region, state.running) == ("nginx:1", "web", "eu", True)
                await control.deploy("c1", "web", image="nginx:2", by_user=True)
                item = await watch.until("item")
                assert item.action.value.image == "nginx:2" and item.by_user and item.trace == "00-trace-span-01"
                assert item.version.number > items[key].version.number
                await control.remove("c1", key, by_user=True)
                item = await watch.until("item")
                assert item.action.field == "delete" and item.action.value.name == "web"
                assert await watch.until("progress")


async def test_resuming_from_the_cursor_sends_no_object_that_did_not_change(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            for n in range(5):
                await control.deploy("c1", f"web{n}")
            async with watching(agent) as watch:
                cursor = (await full_sync(watch))[3].cursor
            changed = await control.deploy("c1", "web3", image="nginx:9")
            async with watching(agent, cursor) as watch:
                assert (await watch.until("welcome")).resumed
                field, item = await watch.next()
                assert (field, item.key) == ("item", changed)
                field, _ = await watch.next()
                assert field == "progress"
            async with watching(agent, watch.cursor) as watch:
                assert (await watch.until("welcome")).resumed
                await control.deploy("c1", "web1", image="nginx:9")
                field, item = await watch.next()
                assert field == "item" and item.key == "deployment/dep_web1"


@pytest.mark.parametrize("sentinels", [False, True])
async def test_a_malformed_cursor_is_refused_and_changes_nothing(tmp_path: Path, sentinels: bool) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            before = await control.database.position()
            async with watching(agent) as other:
                await other.until("sync_end")
                async with watching(agent, "main.1.5.0123456789abcdef0123", sentinels=sentinels) as watch:
                    assert (await watch.error()).code is Code.INVALID_ARGUMENT
                async with watching(agent, "nonsense", sentinels=sentinels) as watch:
                    assert (await watch.error()).code is Code.INVALID_ARGUMENT
                assert await control.database.position() == before
                await control.deploy("c1", "web")
                assert await other.until("item")


async def test_a_cursor_from_the_future_proves_that_the_database_went_back(tmp_path: Path) -> None:
    from shoal.sync.versions import Cursor, encode_cursor

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            key = await control.deploy("c1", "web")
            before = await control.database.position()
            keys = {"main": control.database.signing_key}
            ahead = encode_cursor(Cursor({"main": (before.incarnation + 2, 3)}), keys)
            async with watching(agent, ahead) as watch:
                welcome = await watch.until("welcome")
                assert welcome.observe_only and not welcome.resumed
                _, items, _, _ = await full_sync(watch)
                assert items[key].version.incarnation == before.incarnation + 3
            old = encode_cursor(Cursor({"main": (before.incarnation, before.number)}), keys)
            async with watching(agent, old) as watch:
                assert (await watch.until("welcome")).observe_only


async def test_a_cursor_older_than_what_is_kept_leads_to_a_full_sync(tmp_path: Path) -> None:
    from shoal.control.database.changes import forget

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            await control.deploy("c1", "web")
            async with watching(agent) as watch:
                cursor = (await full_sync(watch))[3].cursor
            key = await control.deploy("c1", "web2")
            await control.remove("c1", key)
            await forget(control.database, -1, 10**9)  # also what was written in this millisecond
            await control.restart()
            async with watching(agent, cursor) as watch:
                welcome = await watch.until("welcome")
                assert not welcome.resumed and not welcome.observe_only and "too old" in welcome.reason
                _, items, keys, _ = await full_sync(watch)
                assert keys == {"deployment/dep_web"}
                assert items[key].action.field == "delete", "an agent that was away long hears of deletes all the same"


async def test_identity_must_be_complete_and_what_the_token_is_bound_to(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            await control.add_cluster("c2", region="us", shards=("s1", "s2"))
            cases = [
                ({"cluster": "c2", "region": "us", "shard": "s1"}, Code.PERMISSION_DENIED),
                ({"region": "us"}, Code.PERMISSION_DENIED),
                ({"shard": ""}, Code.INVALID_ARGUMENT),
                ({"agent": ""}, Code.INVALID_ARGUMENT),
                ({"shard": "other"}, Code.NOT_FOUND),
                ({"epoch": 0}, Code.FAILED_PRECONDITION),
                ({"epoch": 99}, Code.FAILED_PRECONDITION),
            ]
            good = {name: getattr(agent.identity, name) for name in ("cluster", "region", "shard", "agent", "epoch")}
            for wrong, code in cases:
                identity = pb.Identity(**{**good, **wrong})
                for call in (
                    lambda i: agent.client.heartbeat(pb.HeartbeatRequest(identity=i), headers=agent.headers),
                    lambda i: agent.client.get_desired_deployment(
                        pb.GetDesiredRequest(identity=i, key="deployment/x"), headers=agent.headers
                    ),
                ):
                    with pytest.raises(ConnectError) as caught:
                        await call(identity)
                    assert caught.value.code is code, wrong
                other = AgentClient(agent.client, identity, agent.headers)
                async with watching(other) as watch:
                    assert (await watch.error()).code is code, wrong
            bound = await control.agent_token("c2", "us", "s1")
            async with control.agent("c2", "us", shard="s2", token=bound, join=False) as other:
                with pytest.raises(ConnectError) as caught:
                    await other.join()
                assert caught.value.code is Code.PERMISSION_DENIED


@pytest.mark.parametrize("header", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}])
async def test_every_method_refuses_who_has_no_valid_token(tmp_path: Path, header: dict[str, str]) -> None:
    from shoal.wire.fleet.v1.cluster_connect import ClusterService

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (_, agent):
            stranger = AgentClient(agent.client, agent.identity, header)
            methods = {method.name for method in ClusterService.desc().methods}
            for name in methods - {"WatchDeployments", "WatchSentinels"}:
                method = next(method for method in ClusterService.desc().methods if method.name == name)
                snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
                message = getattr(pb, method.input.name)()
                with pytest.raises(ConnectError) as caught:
                    answer = getattr(agent.client, snake)(message, headers=header)
                    if hasattr(answer, "__aiter__"):
                        async for _ in answer:
                            pass
                    else:
                        await answer
                assert caught.value.code is Code.UNAUTHENTICATED, name
            for sentinels in (False, True):
                async with watching(stranger, sentinels=sentinels) as watch:
                    assert (await watch.error()).code is Code.UNAUTHENTICATED


async def test_a_token_of_a_user_opens_no_method(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            text, _ = await control.tokens.create(kind="user", name="u", workspace_id="ws_1", role="admin")
            with pytest.raises(ConnectError) as caught:
                await agent.client.heartbeat(
                    pb.HeartbeatRequest(identity=agent.identity), headers={"authorization": f"Bearer {text}"}
                )
            assert caught.value.code is Code.PERMISSION_DENIED


async def test_a_newer_epoch_fences_the_older_one_within_a_second(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent), watching(agent) as deployments:
            await deployments.until("sync_end")
            async with (
                watching(agent, sentinels=True) as sentinels,
                control.agent("c1", "eu", name="standby") as standby,
            ):
                assert standby.identity.epoch == agent.identity.epoch + 1
                async with asyncio.timeout(1.0):
                    errors = [await deployments.error(), await sentinels.error()]
                assert [error.code for error in errors] == [Code.FAILED_PRECONDITION] * 2
                assert all(error.message.startswith("fenced") for error in errors)
                with pytest.raises(ConnectError, match="fenced"):
                    await agent.client.heartbeat(pb.HeartbeatRequest(identity=agent.identity), headers=agent.headers)
                async with watching(agent) as again:
                    assert (await again.error()).message.startswith("fenced")
                async with watching(standby) as watch:
                    assert await watch.until("sync_end")


async def test_a_join_at_another_control_plane_fences_here_too(tmp_path: Path) -> None:
    from shoal.control.database.tables import Agent

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent), watching(agent) as watch:
            await watch.until("sync_end")
            async with control.database.transaction() as tx:  # as another process would
                row = await tx.session.get_one(Agent, ("clu_c1", "default"))
                row.epoch += 1
                row.joined_at = tx.now
            async with asyncio.timeout(1.0):
                assert (await watch.error()).code is Code.FAILED_PRECONDITION


async def test_the_streams_of_a_revoked_token_end_within_a_second_and_those_of_others_go_on(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent), watching(agent) as other:
            await other.until("sync_end")
            text, row = await control.tokens.create(kind="agent", name="leaked", cluster="c1", region="eu")
            thief = AgentClient(agent.client, agent.identity, {"authorization": f"Bearer {text}"})
            async with watching(thief) as watch:
                await watch.until("sync_end")
                await control.tokens.revoke(row.id)
                async with asyncio.timeout(1.0):
                    assert (await watch.error()).code is Code.UNAUTHENTICATED
            await control.deploy("c1", "web")
            assert await other.until("item")


async def test_a_replaced_token_ends_the_streams_of_its_old_text_when_that_stops_working(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            text, row = await control.tokens.create(kind="agent", name="old", cluster="c1", region="eu")
            holder = AgentClient(agent.client, agent.identity, {"authorization": f"Bearer {text}"})
            async with watching(holder) as watch:
                await watch.until("sync_end")
                second, _ = await control.tokens.rotate(row.id, grace_s=3600)
                other = AgentClient(agent.client, agent.identity, {"authorization": f"Bearer {second}"})
                async with watching(other) as new:
                    await new.until("sync_end")
                    await control.deploy("c1", "web")
                    assert await watch.until("item"), "the old text works on for a while, and so does its stream"
                    third, _ = await control.tokens.rotate(row.id, grace_s=3600)
                    async with asyncio.timeout(5.0):
                        assert (await watch.error()).code is Code.UNAUTHENTICATED, "the first text is two behind"
                    fourth, _ = await control.tokens.rotate(row.id, grace_s=0)
                    async with asyncio.timeout(5.0):
                        assert (await new.error()).code is Code.UNAUTHENTICATED
                holder.headers["authorization"] = f"Bearer {third}"
                async with watching(holder) as refused:
                    assert (await refused.error()).code is Code.UNAUTHENTICATED
                holder.headers["authorization"] = f"Bearer {fourth}"
                async with watching(holder) as again:
                    assert await again.until("sync_end")


async def test_a_digest_that_differs_gets_the_buckets_that_differ(tmp_path: Path) -> None:
    from dataclasses import replace

    from shoal.sync.digest import Digest, bucket_of, differing
    from shoal.testing.fleet import QUICK

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path, config=replace(QUICK, digest_every_s=0.2)) as (control, agent):
            keys = [await control.deploy("c1", f"web{n}") for n in range(8)]
            async with watching(agent) as watch:
                _, items, _, _ = await full_sync(watch)
                digest = await watch.until("digest")
                ours = Digest()
                for key, item in items.items():
                    ours.put(key, f"{item.version.database}:{item.version.incarnation}:{item.version.number}")
                assert digest.cursor and differing(ours.buckets, digest.buckets) == []
                bucket = bucket_of(keys[3])
                watch.ask(bucket, 9999)
                begin, items, named, _ = await full_sync(watch)
                assert list(begin.buckets) == [bucket]
                assert items.keys() == named == {key for key in keys if bucket_of(key) == bucket}


async def test_one_object_can_be_asked_for_and_only_an_unknown_one_is_not_found(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):

            async def get(key: str) -> pb.Item:
                return await agent.client.get_desired_deployment(
                    pb.GetDesiredRequest(identity=agent.identity, key=key), headers=agent.headers
                )

            key = await control.deploy("c1", "web", image="nginx:5")
            assert (await get(key)).action.value.image == "nginx:5"
            await control.remove("c1", key)
            assert (await get(key)).action.field == "delete"
            for wrong, code in (
                ("deployment/none", Code.NOT_FOUND),
                ("route/x", Code.INVALID_ARGUMENT),
                ("", Code.INVALID_ARGUMENT),
            ):
                with pytest.raises(ConnectError) as caught:
                    await get(wrong)
                assert caught.value.code is code


async def test_a_complete_sync_can_be_asked_for_once(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            keys = {await control.deploy("c1", f"web{n}") for n in range(250)}
            events = [
                event.event
                async for event in agent.client.sync_deployments(
                    pb.SyncRequest(identity=agent.identity), headers=agent.headers
                )
            ]
            assert [events[0].field, events[-1].field] == ["sync_begin", "sync_end"]
            assert {event.value.key for event in events if event.field == "item"} == keys
            assert {key for event in events if event.field == "sync_keys" for key in event.value.keys} == keys


async def test_a_load_that_fails_for_a_while_loses_nothing_and_blocks_nobody(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            async with watching(agent) as watch:
                start = (await full_sync(watch))[3].cursor
                sealer = control.sealer
                broken = True
                real = sealer.rewrap

                async def rewrap(data_key: bytes, master_key: str, public_key: bytes) -> bytes:
                    if broken:
                        raise OSError("the key service is away")
                    return await real(data_key, master_key, public_key)

                sealer.rewrap = rewrap  # type: ignore[method-assign]
                await add_secret(control, "db")
                await watch.until("item")
                secret = await control.deploy("c1", "web", template={"secrets": ["db"]})
                plain = await control.deploy("c1", "web2")
                assert (await watch.until("item")).key == plain
                progress = await watch.until("progress")
                async with watching(agent, progress.cursor) as again:
                    assert (await again.until("welcome")).resumed
                    broken = False
                    items = {(await again.until("item")).key for _ in range(2)}
                    assert items == {secret, plain}, "the cursor stayed before what was not sent"
                item = await watch.until("item")
                assert item.key == secret and item.action.value.secrets[0].variables == ["PASSWORD"]
                assert item.action.value.secrets[0].wrapped_key == b"for kkkk: data-key"
                assert start


async def test_a_secret_that_is_not_there_any_more_is_sent_as_missing_and_not_left_out(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            await add_secret(control, "db")
            key = await control.deploy("c1", "web", template={"secrets": ["db", "gone"]})
            async with watching(agent) as watch:
                secrets = (await full_sync(watch))[1][key].action.value.secrets
                assert [(each.secret, bool(each.ciphertext)) for each in secrets] == [("sec_db", True), ("gone", False)]


async def add_secret(control: ControlPlane, name: str) -> None:
    from shoal.control.database.tables import Secret

    await control.deploy("c1", "seed")
    async with control.database.transaction() as tx:
        tx.session.add(
            Secret(
                id=f"sec_{name}", workspace_id="ws_1", name=name, labels={}, annotations={}, generation=1, version=1,
                spec={"variables": ["PASSWORD"]}, created_at=tx.now, updated_at=tx.now, project_id="prj_1",
                environment_id="env_1", revision=1, ciphertext=b"sealed", data_key=b"data-key", master_key="plain",
            )
        )  # fmt: skip


def report(key: str, item: pb.Item | None = None, *instances: pb.Instance, **fields: Any) -> pb.DeploymentReport:
    return pb.DeploymentReport(key=key, applied=item.version if item else None, instances=list(instances), **fields)


def instance(uid: str, *, ready: bool | None = True, **fields: Any) -> pb.Instance:
    said = {} if ready is None else {"ready": ready}
    return pb.Instance(
        name=f"pod-{uid}", uid=uid, address="10.0.0.1:80", status=pb.InstanceStatus.RUNNING, **said, **fields
    )


async def send(agent: AgentClient, sequence: int, *reports: pb.DeploymentReport) -> list[str]:
    answer = await agent.client.report_deployment_status(
        pb.ReportDeploymentStatusRequest(identity=agent.identity, sequence=sequence, reports=list(reports)),
        headers=agent.headers,
    )
    return list(answer.unknown)


async def desired_row(control: ControlPlane, key: str) -> Any:
    from sqlalchemy import select

    from shoal.control.database.tables import Desired

    async with control.database.reading() as session:
        return (await session.execute(select(Desired).where(Desired.key == key))).scalar_one()


async def instances_of(control: ControlPlane) -> dict[str, Any]:
    from sqlalchemy import select

    from shoal.control.database.tables import Instance

    async with control.database.reading() as session:
        return {row.uid: row for row in (await session.execute(select(Instance))).scalars()}


async def get_item(agent: AgentClient, key: str) -> pb.Item:
    request = pb.GetDesiredRequest(identity=agent.identity, key=key)
    return await agent.client.get_desired_deployment(request, headers=agent.headers)


async def test_reports_are_stored_in_order_and_missing_instances_go(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            key = await control.deploy("c1", "web")
            item = await get_item(agent, key)
            first = report(key, item, instance("u1"), instance("u2"), desired_replicas=2, available_replicas=2)
            assert await send(agent, 1, first, report("deployment/none")) == ["deployment/none"]
            rows = await instances_of(control)
            assert rows.keys() == {"u1", "u2"} and rows["u1"].region_id == "reg_eu" and rows["u1"].ready
            row = await desired_row(control, key)
            assert (row.applied_number, row.observed["available"]) == (item.version.number, 2)
            error = pb.ApplyError(version=item.version, reason="Quota", message="too much\0", attempts=3, since_ms=5)
            await send(agent, 3, report(key, item, instance("u3", ready=None, restarts=4), error=error))
            await send(agent, 2, report(key, item, instance("u1")))  # late: an older one
            rows = await instances_of(control)
            assert rows.keys() == {"u3"} and rows["u3"].restarts == 4
            assert not rows["u3"].ready, "what is not said to be ready is not"
            row = await desired_row(control, key)
            assert row.error == {
                "number": item.version.number,
                "reason": "Quota",
                "message": "too much",
                "attempts": 3,
                "since": 5,
            }
            assert (row.report_epoch, row.report_sequence) == (agent.identity.epoch, 3)
            await control.remove("c1", key)
            await send(agent, 4, report(key, gone=True))
            assert await instances_of(control) == {} and (await desired_row(control, key)).gone_at > 0


async def test_reports_that_are_wrong_fail_alone(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            key = await control.deploy("c1", "web")
            sent = [send(agent, n, report(key, None, instance(f"u{n}"))) for n in range(1, 20)]
            wrong = [
                send(agent, 50, report("nonsense")),
                send(agent, 0, report(key)),
                send(agent, 51, report("route/x")),
            ]
            results = await asyncio.gather(*sent, *wrong, return_exceptions=True)
            assert results[:19] == [[]] * 19
            assert all(
                isinstance(error, ConnectError) and error.code is Code.INVALID_ARGUMENT for error in results[19:]
            )
            assert (await desired_row(control, key)).report_sequence == 19


async def test_reports_of_a_replaced_agent_are_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            key = await control.deploy("c1", "web")
            async with control.agent("c1", "eu", name="standby") as standby:
                await send(standby, 1, report(key, None, instance("new")))
                with pytest.raises(ConnectError, match="fenced"):
                    await send(agent, 100, report(key, None, instance("old")))
            assert (await instances_of(control)).keys() == {"new"}


async def test_what_follows_from_reports_is_in_their_transaction(tmp_path: Path) -> None:
    from shoal.control.service.reports.reports import Consequences

    seen: list[set[str]] = []
    failing = True

    async def after(tx: Any, ids: set[str]) -> None:
        seen.append(ids)
        if failing:
            raise ValueError("a fault")

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path, consequences=Consequences(after, after)) as (control, agent):
            key = await control.deploy("c1", "web")
            with pytest.raises(ConnectError):
                await send(agent, 1, report(key, None, instance("u1")))
            assert await instances_of(control) == {}
            failing = False
            await send(agent, 1, report(key, None, instance("u1")))
            assert (await instances_of(control)).keys() == {"u1"} and seen[-1] == {"dep_web"}
            count = len(seen)
            await send(agent, 2, report(key, None, instance("u1"), observed_ms=77))
            assert len(seen) == count, "a report that says the same again has no consequences"
            assert (await desired_row(control, key)).report_sequence == 2


async def test_heartbeats_are_stored_and_ask_for_the_reports_that_are_missing(tmp_path: Path) -> None:
    from sqlalchemy import select, update

    from shoal.control.database.tables import Agent
    from shoal.sync.digest import Digest, bucket_of
    from shoal.sync.fingerprint import fingerprint

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            key = await control.deploy("c1", "web")
            said = report(key, None, instance("u1"))
            await send(agent, 1, said)
            digest = Digest()
            digest.put(key, str(fingerprint(said)))
            brake = pb.Brake(held=True, reason="many", keys=["deployment/x"], count=1)

            async def beat(buckets: list[int]) -> pb.HeartbeatResponse:
                state = pb.ControllerState(
                    cursor="c", connection="watching", breaker="closed", objects=1, brake=brake, reported=buckets
                )
                request = pb.HeartbeatRequest(identity=agent.identity, deployments=state, software="shoal/1")
                return await agent.client.heartbeat(request, headers=agent.headers)

            assert list((await beat(digest.buckets)).resend_deployments) == []
            digest.put("deployment/lost", "1")
            assert list((await beat(digest.buckets)).resend_deployments) == [bucket_of("deployment/lost")]
            async with control.database.transaction() as tx:
                await tx.session.execute(update(Agent).values(confirmed_deletes="until-here"))

            async def confirmed() -> str:
                return (await beat([])).confirmed_deletes

            await becomes(confirmed, "until-here")
            async with control.database.reading() as session:
                row = (await session.execute(select(Agent))).scalar_one()
            assert (
                row.state["deployments"]["brake"]["keys"] == ["deployment/x"] and row.last_heartbeat_at > row.joined_at
            )


async def test_heartbeats_on_a_stream_are_taken_like_calls_and_answered_also_during_a_sync(tmp_path: Path) -> None:
    from sqlalchemy import select

    from shoal.control.database.tables import Agent
    from shoal.sync.digest import Digest, bucket_of

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent), watching(agent) as watch:
            assert (await watch.until("welcome")).heartbeats
            digest = Digest()
            digest.put("deployment/lost", "1")
            state = pb.ControllerState(cursor="c", connection="watching", objects=3, reported=digest.buckets)
            beat = pb.HeartbeatRequest(deployments=state, software="shoal/2")
            watch.said.put_nowait(request("heartbeat", beat))
            answer = await watch.until("heartbeat")
            assert list(answer.resend_deployments) == [bucket_of("deployment/lost")]
            watch.said.put_nowait(request("heartbeat", pb.HeartbeatRequest()))
            assert list((await watch.until("heartbeat")).resend_deployments) == []

            async def stored() -> Any:
                async with control.database.reading() as session:
                    return (await session.execute(select(Agent.software, Agent.state))).one().software

            await becomes(stored, "")  # what came last counts


async def test_whoever_says_anything_on_a_stream_is_not_lost_and_its_state_stays(tmp_path: Path) -> None:
    from dataclasses import replace

    from sqlalchemy import select, update

    from shoal.control.database.tables import Agent
    from shoal.testing.fleet import QUICK

    async with asyncio.timeout(60):
        config = replace(QUICK, heartbeat_flush_s=0.1)
        async with one_cluster(tmp_path, config=config) as (control, agent), watching(agent) as watch:
            await full_sync(watch)
            beat = pb.HeartbeatRequest(deployments=pb.ControllerState(objects=3), software="shoal/2")
            watch.said.put_nowait(request("heartbeat", beat))
            await watch.until("heartbeat")

            async def row() -> Any:
                async with control.database.reading() as session:
                    asked = select(Agent.lost, Agent.software, Agent.state, Agent.last_heartbeat_at)
                    return (await session.execute(asked)).one()

            async def software() -> str:
                return str((await row()).software)

            await becomes(software, "shoal/2")
            async with control.database.transaction() as tx:
                await tx.session.execute(update(Agent).values(lost=True, last_heartbeat_at=1))

            async def is_back() -> bool:
                watch.said.put_nowait(request("received", pb.Received(cursor=watch.cursor)))
                found = await row()
                return not found.lost and found.last_heartbeat_at > 1

            await becomes(is_back, True)
            found = await row()
            assert (found.software, found.state["deployments"]["objects"]) == ("shoal/2", 3)


async def test_an_agent_that_is_silent_is_lost_and_comes_back_with_its_reports(tmp_path: Path) -> None:
    from dataclasses import replace

    from sqlalchemy import select

    from shoal.control.database.tables import Agent, Event
    from shoal.sync.digest import Digest
    from shoal.sync.fingerprint import fingerprint
    from shoal.testing.fleet import QUICK

    config = replace(QUICK, heartbeat_s=0.3, missed_heartbeats=2, heartbeat_flush_s=0.1)

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path, config=config) as (control, agent):
            key = await control.deploy("c1", "web")
            said = report(key, None, instance("u1"))
            await send(agent, 1, said)
            number = (await desired_row(control, key)).number

            async def is_lost() -> bool:
                async with control.database.reading() as session:
                    return bool((await session.execute(select(Agent.lost))).scalar_one())

            await becomes(is_lost, True)
            assert (await instances_of(control))["u1"].status == "unknown"
            assert (await desired_row(control, key)).number == number, "what is desired stays: traffic is not withdrawn"
            digest = Digest()
            digest.put(key, str(fingerprint(said)))
            state = pb.ControllerState(reported=digest.buckets)
            beat = pb.HeartbeatRequest(identity=agent.identity, deployments=state)
            answer = await agent.client.heartbeat(beat, headers=agent.headers)
            assert answer.resend_deployments, "what it reported before is asked for again"
            await becomes(is_lost, False)
            await send(agent, 2, said)
            assert (await instances_of(control))["u1"].status == "running"
            async with control.database.reading() as session:
                reasons = set((await session.execute(select(Event.reason))).scalars())
            assert {"AgentJoined", "AgentLost", "AgentReturned"} <= reasons


async def test_an_agent_that_cannot_use_its_cluster_is_not_lost_and_its_reports_stay(tmp_path: Path) -> None:
    from sqlalchemy import select

    from shoal.control.database.tables import Agent, Event
    from shoal.control.domain.silence import outage_of
    from shoal.sync.digest import Digest
    from shoal.sync.fingerprint import fingerprint

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            key = await control.deploy("c1", "web")
            said = report(key, None, instance("u1"))
            await send(agent, 1, said)
            digest = Digest()
            digest.put(key, str(fingerprint(said)))
            state = pb.ControllerState(connection="stopped", reported=digest.buckets)

            async def tell(outage: pb.ClusterOutage | None) -> None:
                beat = pb.HeartbeatRequest(identity=agent.identity, deployments=state, outage=outage)
                answer = await agent.client.heartbeat(beat, headers=agent.headers)
                assert not answer.resend_deployments

            async def outage() -> str:
                async with control.database.reading() as session:
                    found = outage_of((await session.scalars(select(Agent))).one())
                return str(found.get("reason", ""))

            for _ in range(2):
                await tell(pb.ClusterOutage(reason="connection refused", seconds=12.0))
                await becomes(outage, "connection refused")
            assert (await instances_of(control))["u1"].status == "running"
            await tell(None)
            await becomes(outage, "")
            async with control.database.reading() as session:
                told = list((await session.execute(select(Event.reason).order_by(Event.id))).scalars())
            assert [each for each in told if each.startswith("Cluster")] == ["ClusterUnreachable", "ClusterReachable"]


async def test_an_agent_is_told_the_image_of_its_cluster_and_says_what_it_runs(tmp_path: Path) -> None:
    from sqlalchemy import select, update

    from shoal.control.database.tables import Agent, Cluster

    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):

            async def told() -> str:
                image = pb.AgentImage(running="shoal:1", error="no rights", waiting=["shoal-krane"])
                beat = pb.HeartbeatRequest(identity=agent.identity, image=image)
                return (await agent.client.heartbeat(beat, headers=agent.headers)).image

            assert await told() == ""
            async with control.database.transaction() as tx:
                spec = (await tx.session.scalars(select(Cluster))).one().spec
                await tx.session.execute(update(Cluster).values(spec={**spec, "agentImage": "shoal:2"}))
            await becomes(told, "shoal:2")

            async def known() -> object:
                async with control.database.reading() as session:
                    state = (await session.scalars(select(Agent))).one().state or {}
                return state.get("image")

            await becomes(known, {"running": "shoal:1", "error": "no rights", "waiting": ["shoal-krane"]})


async def test_two_streams_of_an_agent_fail_apart(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            async with watching(agent) as deployments:
                await deployments.until("sync_end")
                async with watching(agent, sentinels=True) as sentinels:
                    await sentinels.until("sync_end")
                    sentinels.said.put_nowait(request("hello", pb.Hello(identity=agent.identity)))
                    assert (await sentinels.error()).code is Code.INVALID_ARGUMENT
                await control.deploy("c1", "web")
                assert await deployments.until("item")


async def test_a_restarted_control_plane_goes_on_from_the_cursor(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            await control.deploy("c1", "web")
            async with watching(agent) as watch:
                cursor = (await full_sync(watch))[3].cursor
                await control.restart()
                assert (await watch.error()).code is Code.UNAVAILABLE
            await control.deploy("c1", "web2")
            async with control.agent("c1", "eu", join=False) as same:
                same.identity = agent.identity
                async with watching(same, cursor) as watch:
                    assert (await watch.until("welcome")).resumed
                    assert (await watch.until("item")).key == "deployment/dep_web2"


async def test_a_client_that_goes_away_is_noticed_while_nothing_happens(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        async with one_cluster(tmp_path) as (control, agent):
            async with watching(agent) as watch:
                await watch.until("sync_end")
                assert len(control.server.hub.streams) == 1

            async def open_streams() -> int:
                return len(control.server.hub.streams)

            await becomes(open_streams, 0)
