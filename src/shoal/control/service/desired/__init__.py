"""Desired state of every place: read from the databases, indexed, and rendered for agents."""
