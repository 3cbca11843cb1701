"""Endpoints: the older API for the addresses of a service, one object per service."""
