"""Removes pods that nobody else will: of nodes that are gone, unscheduled ones that end, and old finished ones."""
