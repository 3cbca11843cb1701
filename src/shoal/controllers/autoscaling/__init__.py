"""Scales workloads by what their pods use: HorizontalPodAutoscalers."""
