"""The navigator's processes: the manager, and the edge beside each cluster."""
