"""Probes of containers: what they ask, what their answers mean, and the tasks that ask."""
