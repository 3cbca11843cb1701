"""What every other package may use and that knows nothing of Kubernetes: time, ids, tasks, queues, logs, settings."""
