"""Mutating and validating webhooks, and the conversion webhooks of custom resource definitions."""
