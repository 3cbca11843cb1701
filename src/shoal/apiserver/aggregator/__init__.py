"""Aggregation: APIServices, and the group versions that other servers serve."""
