"""Join files of the edges that run with a manager on one machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from shoal.app.navigator.config import database_url
from shoal.base.clock import RealClock
from shoal.base.files import write_private
from shoal.base.ids import Ids
from shoal.navigator.manager.databases import rows_for
from shoal.navigator.manager.tokens import EDGE, NavigatorTokens


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
