"""Sharding as processes: manager, worker and proxy."""
