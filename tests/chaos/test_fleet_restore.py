"""A database restored from an old backup: no running object is deleted because the control plane does not know it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from shoal.testing.fleet_recorder import FleetRecorder, marker_of
from shoal.testing.fleets import LocalFleet, app
from shoal.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)  # enough for a busy machine

OLD = ("kept",)
NEW = tuple(f"forgotten{at}" for at in range(7))  # more than the brake lets pass
AGENT = "eu-1-default"


async def test_after_an_old_backup_is_restored_unknown_objects_run_on_until_an_operator_confirms(
    tmp_path: Path,
) -> None:
    control, saved = tmp_path / "fleet" / "control", tmp_path / "saved"

    def save(to: Path, source: Path) -> None:
        to.mkdir(exist_ok=True)
        for file in to.glob("fleet.db*"):
            file.unlink()
        for file in source.glob("fleet.db*"):
            shutil.copy2(file, to / file.name)

    with LocalFleet(tmp_path / "fleet") as fleet:
        await asyncio.to_thread(fleet.start, {"eu-1": "eu"})
        await asyncio.to_thread(fleet.start_agents, [("eu-1", "default")])
        async with FleetRecorder(fleet) as witness:
            for name in OLD:
                await asyncio.to_thread(fleet.api.put, app(name, {"eu": 1}, marker="before"))
            await witness.settled()
            await asyncio.to_thread(fleet.control.stop)
            save(saved, control)
            await asyncio.to_thread(fleet.control.start)
            for name in NEW:
                await asyncio.to_thread(fleet.api.put, app(name, {"eu": 1}, marker="after"))
            await asyncio.to_thread(fleet.api.put, app(OLD[0], {"eu": 1}, marker="after"))
            await witness.settled()
            position = max(row.number for row in await witness.desired())
            await eventually(
                lambda: asyncio.to_thread(lambda: version_seen(fleet) >= position), timeout_s=60, explain=fleet.logs
            )

            # each revision is a Deployment of its own, and the backup does not know the later one of its app either
            unknown = {obj["metadata"]["name"] for name in (*OLD, *NEW) for obj in witness.of_app(name, "eu-1")}
            assert len(unknown) == 1 + len(NEW)

            def lost() -> set[str]:
                return unknown & {each.name for each in witness.deleted}

            def markers() -> set[str]:
                return {marker_of(obj) for obj in witness.of_app(OLD[0], "eu-1")}

            await asyncio.to_thread(fleet.control.stop)
            save(control, saved)
            await asyncio.to_thread(fleet.control.start)
            # objects that the database knows follow it; deletions of all others are held, and they keep running
            await witness.until(lambda: markers() == {"before", "after"})
            await eventually(
                lambda: asyncio.to_thread(lambda: len(held(fleet)) >= len(unknown)), timeout_s=60, explain=fleet.logs
            )
            assert not lost()
            assert await asyncio.to_thread(
                lambda: fleet.api.metric("shoal_control_hellos_total", result="observe_only")
            )
            assert await asyncio.to_thread(lambda: fleet.api.metric("shoal_control_incarnations_total")) == 1

            # new changes are applied while deletions are held, also a revision whose number the lost history had, too
            await asyncio.to_thread(fleet.api.put, app(OLD[0], {"eu": 1}, marker="again"))
            await witness.until(lambda: {"again", "after"} <= markers())
            assert not lost()
            await asyncio.to_thread(fleet.api.request, "POST", "/agents/eu-1/default/confirm-deletes")
            rows = await witness.settled(timeout_s=90)
            witness.assert_nothing_wanted_was_deleted(rows)
            assert lost() == unknown
            await witness.until(lambda: markers() == {"again"})


def version_seen(fleet: LocalFleet) -> float:
    return fleet.agent_metric(AGENT, "shoal_krane_version_last_seen", controller="deployments")


def held(fleet: LocalFleet) -> list[str]:
    found: list[str] = fleet.agent_status(AGENT)["controllers"].get("deployments", {}).get("heldDeletes", [])
    return found
