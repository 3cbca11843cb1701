"""Deletes finished Jobs after their ``ttlSecondsAfterFinished``."""
