"""HorizontalPodAutoscalers: scales workloads by the resource usage of their pods and by other metrics."""
