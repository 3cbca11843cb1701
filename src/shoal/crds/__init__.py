"""Shoal's custom resources: their definitions, and typed views for writers and readers."""
