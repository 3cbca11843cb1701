"""Sentinels in the cluster, and the routes, policies and keys that they read: rendered, applied, and observed."""
