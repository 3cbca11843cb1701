"""What a control plane is told of the clusters of ``shoal up``, and what their agents get to reach it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shoal.app.up_options import UpOptions, cluster_of
from shoal.base.files import write_private
from shoal.cli.rest import RequestRefused, Rest

SHARD = "default"


def introduce(rest: Rest, options: UpOptions) -> None:
    """Tell the control plane of the regions and their clusters, and get the agents' join files where they are missing
    or no longer good."""
    for region in options.regions:
        cluster = cluster_of(region)
        _ensure(rest, f"/api/v1/regions/{region}", _document("Region", region, {}))
        _ensure(rest, f"/api/v1/clusters/{cluster}", _document("Cluster", cluster, {"region": region}))
        _ensure_join_file(rest, options.cluster_dir(region) / "join.json", cluster, region)
    rest.close()


def _ensure(rest: Rest, path: str, document: dict[str, Any]) -> None:
    """Create it unless it exists; later changes by the user stay."""
    try:
        rest.request("PUT", path, document, headers={"If-None-Match": "*"})
    except RequestRefused as refused:
        if refused.status != 412:
            raise


def _ensure_join_file(rest: Rest, path: Path, cluster: str, region: str) -> None:
    if path.exists():
        held = json.loads(path.read_bytes())
        listed = {token["name"]: token for token in rest.get("/api/v1/tokens", kind="agent")["items"]}
        found = listed.get(f"agent-{cluster}")
        good = found is not None and not found.get("revoked")
        if good and rest.context.url in (held["url"], *held.get("urls", ())):
            return
        if good:
            moved = {**held, "url": rest.context.url, "ca": rest.context.ca}
            if "urls" in held:
                moved["urls"] = [rest.context.url if url == held["url"] else url for url in held["urls"]]
            write_private(path, json.dumps(moved).encode())
            return
    body = {"kind": "agent", "name": f"agent-{cluster}", "cluster": cluster, "region": region, "shard": SHARD}
    made = rest.request("POST", "/api/v1/tokens", body).body
    write_private(path, json.dumps(made["join"], indent=2).encode())


def _document(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "shoal.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
