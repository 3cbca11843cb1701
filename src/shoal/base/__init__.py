"""Shared foundations without knowledge of Kubernetes: time, ids, tasks, queues, logs, settings."""
