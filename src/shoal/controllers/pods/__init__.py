"""Shared parts of the workload controllers: pod templates, claiming, expectations, ranking, readiness, pacing."""
