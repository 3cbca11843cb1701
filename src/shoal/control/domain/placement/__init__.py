"""Which cluster and shard a deployment of a region runs on, and why."""
