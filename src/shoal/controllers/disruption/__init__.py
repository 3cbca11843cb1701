"""Keeps the status of PodDisruptionBudgets: existing, required and evictable pods."""
