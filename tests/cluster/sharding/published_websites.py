"""The sample controller with slow handlers: it publishes each changed Website, which takes some time.

Environment: PUBLISH_S is the time in seconds; PUBLISH_JOURNALS is a folder for journals of accepted writes.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from shoal.app.demo import websites
from shoal.sharding.worker import Owned, ShardedController
from shoal.testing.exclusion import journal_to

_PUBLISH_S = float(os.environ.get("PUBLISH_S", "1"))

app = ShardedController()


@app.reconcile(websites.GROUP, websites.KIND, controls=[("", "ConfigMap"), ("apps", "Deployment")])
async def published(owned: Owned) -> None:
    known = (owned.object.get("status") or {}).get("observedGeneration")
    changed = known != owned.object["metadata"]["generation"]
    await websites.website(owned)
    if changed:
        await asyncio.sleep(_PUBLISH_S)


if "PUBLISH_JOURNALS" in os.environ:
    _who = f"{os.environ['SHARD_ID']}-{os.getpid()}"
    app.journal = journal_to(
        Path(os.environ["PUBLISH_JOURNALS"]) / f"{_who}.jsonl", _who, config=os.environ["SHARD_CONFIG"]
    )
