"""Endpoints: the older way to say what is behind a service, one object for all of it."""
