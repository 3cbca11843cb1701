"""Agents' reports, and their effects on database rows."""
