"""Mirroring: Endpoints that users write for services without a selector become slices."""
