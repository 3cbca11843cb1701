"""What a navigator's manager gives to other processes of its machine."""

from __future__ import annotations

from pathlib import Path

from shoal.app.fleet.navigator_folder import NavigatorFolder
from shoal.app.navigator.config import database_url
from shoal.app.navigator.joining import ensure_access
from shoal.base.clock import RealClock
from shoal.base.ids import Ids
from shoal.navigator.manager.databases import rows_for
from shoal.navigator.manager.tokens import VIEWER, NavigatorTokens


async def test_a_control_plane_gets_a_token_of_one_workspace_and_keeps_it(tmp_path: Path) -> None:
    manager, to = tmp_path / "manager", tmp_path / "control" / "navigator"
    (manager / "pki").mkdir(parents=True)
    to.parent.mkdir()
    (manager / "pki" / "ca.crt").write_text("PEM")
    rows = rows_for(database_url("", manager))
    await rows.open(manager=True)
    try:
        await ensure_access(manager, "https://127.0.0.1:1", to, "default")
        first = await NavigatorFolder(to).of("default")
        await ensure_access(manager, "https://127.0.0.1:2", to, "default")
        second = await NavigatorFolder(to).of("default")
        tokens = NavigatorTokens(rows, clock=RealClock(), new_id=Ids().new_uid)
        held = await tokens.authenticate(first.token)
        assert held is not None and (held.kind, held.scopes) == (VIEWER, ("workspace=default",))
        assert (second.url, second.token, second.ca) == ("https://127.0.0.1:2", first.token, "PEM")
        await tokens.revoke(held.id)
        await ensure_access(manager, "https://127.0.0.1:2", to, "default")
        assert (await NavigatorFolder(to).of("default")).token != first.token
    finally:
        await rows.close()
    assert (to / "tokens" / "default").stat().st_mode & 0o077 == 0
