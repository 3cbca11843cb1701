"""Requests from the manager to an edge: logs, events, a proxy's configuration, calls between services."""
