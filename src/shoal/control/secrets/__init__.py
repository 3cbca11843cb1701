"""Secrets at rest: master keys and where they come from, sealing, and changing the master key while everything runs."""
