"""Clusters, builders and faults for tests: Shoal's own and those of people who write controllers."""
