"""Binds claims to volumes, provisions and reclaims volumes that are folders, and protects both while in use."""
