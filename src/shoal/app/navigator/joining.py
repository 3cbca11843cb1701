"""What other processes of a manager's machine need to use it: join files of edges, and the control plane's access."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from shoal.app.files import make_private_dir
from shoal.app.home import NAVIGATOR_CA, NAVIGATOR_TOKENS, NAVIGATOR_URL
from shoal.app.navigator.config import database_url
from shoal.base.access import Access
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids
from shoal.navigator.manager.databases import rows_for
from shoal.navigator.manager.tokens import EDGE, VIEWER, NavigatorTokens


async def ensure_access(folder: Path, url: str, to: Path, workspace: str) -> None:
    """Write to the folder ``to`` how a control plane asks the manager in ``folder`` about a workspace, with a token
    that reads nothing else; keep a token that is still valid."""
    rows = rows_for(database_url("", folder))
    await rows.open(manager=False)
    try:
        tokens = NavigatorTokens(rows, clock=RealClock(), new_id=Ids().new_uid)
        path, access = to / NAVIGATOR_TOKENS / workspace, Access.parse([f"workspace={workspace}"])
        held = await tokens.authenticate(path.read_text().strip() if path.exists() else "")
        if held is None or held.scopes != access.texts:
            text, _ = await tokens.create(kind=VIEWER, access=access)
            make_private_dir(to)
            make_private_dir(to / NAVIGATOR_TOKENS)
            write_private(path, f"{text}\n".encode())
    finally:
        await rows.close()
    write_private(to / NAVIGATOR_URL, f"{url}\n".encode())
    write_private(to / NAVIGATOR_CA, (folder / "pki" / "ca.crt").read_bytes())


async def ensure_join_files(folder: Path, url: str, clusters: Mapping[str, tuple[str, Path]]) -> None:
    """Write a join file for the edge of each cluster to the manager in ``folder``; keep files that are still
    valid."""
    rows = rows_for(database_url("", folder))
    await rows.open(manager=False)
    try:
        tokens = NavigatorTokens(rows, clock=RealClock(), new_id=Ids().new_uid)
        for cluster, (region, path) in clusters.items():
            known = json.loads(path.read_bytes()) if path.exists() else {}
            held = await tokens.authenticate(known.get("token", ""))
            text = known["token"] if held is not None and held.cluster == cluster else ""
            if not text:
                text, _ = await tokens.create(kind=EDGE, cluster=cluster)
            ca = (folder / "pki" / "ca.crt").read_text()
            made = {"url": url, "token": text, "cluster": cluster, "region": region, "ca": ca}
            if made != known:
                write_private(path, json.dumps(made, indent=2).encode())
    finally:
        await rows.close()
