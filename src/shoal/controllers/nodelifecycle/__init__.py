"""Detects lost nodes, sets their conditions and taints, and limits evictions when many nodes are lost."""
