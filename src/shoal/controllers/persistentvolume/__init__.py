"""Binds claims to volumes, makes volumes that are folders, takes them back, and protects both while they are used."""
