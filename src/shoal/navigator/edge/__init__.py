"""The edge: watches one cluster, reports it to the manager, and answers requests about it."""
