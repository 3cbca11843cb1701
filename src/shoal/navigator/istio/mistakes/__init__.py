"""Finds mistakes in a mesh's configuration: each function finds one family."""
