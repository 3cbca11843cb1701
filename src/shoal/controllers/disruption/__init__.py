"""Keeps the status of PodDisruptionBudgets: how many pods there are, have to be, and may be taken away."""
