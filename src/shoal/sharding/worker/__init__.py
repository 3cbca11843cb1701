"""The worker SDK: write a controller as for one process, and run as many processes as the work needs.

app = ShardedController()

@app.reconcile("example.com", "Website", controls=[("", "ConfigMap"), ("apps", "Deployment")])
async def website(owned: Owned) -> None:
    await owned.ensure_child({...})
    await owned.update_status({"ready": True})
"""

from shoal.sharding.worker.app import Handler, RetryLater, ShardedController
from shoal.sharding.worker.config import WorkerConfig
from shoal.sharding.worker.owned import Owned, OwnershipLost
from shoal.sharding.worker.worker import Worker

__all__ = ["Handler", "OwnershipLost", "Owned", "RetryLater", "ShardedController", "Worker", "WorkerConfig"]
