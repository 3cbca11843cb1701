"""The edge: watches one cluster, reports it to the manager, and answers what only the cluster knows."""
