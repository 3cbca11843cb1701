"""Deletes Jobs some time after they have finished, when they ask for it."""
