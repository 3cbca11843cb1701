"""Empties namespaces that are being deleted, pods first, and lets them go."""
