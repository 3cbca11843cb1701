"""Finds out which nodes are lost, says so in their status and taints, and takes care not to overreact."""
