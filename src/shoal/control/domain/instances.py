"""What is shown of an instance, and what of it is believed while its agent is silent. Pure."""

from __future__ import annotations

from typing import Any

from shoal.control.database import tables
from shoal.control.domain import status as views
from shoal.control.domain.objects import time_text
from shoal.control.domain.placement.facts import Infrastructure
from shoal.control.domain.silence import LOST, silence_of
from shoal.sync.keys import Place


def shown_instance(
    row: tables.Instance, revision: int, namespace: str, infrastructure: Infrastructure, now: int
) -> dict[str, Any]:
    agent = infrastructure.agents.get(Place(row.cluster_id, row.shard))
    silence = silence_of(agent, now)
    lost = silence is not None and silence.reason == LOST
    return {
        "name": row.name,
        "namespace": namespace,
        "revision": revision,
        "deployment": row.deployment_id,
        "region": infrastructure.region_name(row.region_id),
        "cluster": infrastructure.cluster_name(row.cluster_id),
        "shard": row.shard,
        "address": row.address,
        "node": row.node,
        "zone": row.zone,
        "status": "unknown" if lost else row.status,
        "ready": row.ready and not lost,
        "restarts": row.restarts,
        "reason": silence.reason if silence is not None else row.reason,
        "message": row.message,
        "exitCode": row.exit_code,
        "cpuMillicores": row.cpu_millicores,
        "memoryMib": row.memory_mib,
        "startedAt": time_text(row.started_at),
        "age": views.age_s(row.reported_at, now),
    }
