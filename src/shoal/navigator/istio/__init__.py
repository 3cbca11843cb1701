"""Istio configuration as data: what acts on a workload, why, and what is wrong. Pure."""
