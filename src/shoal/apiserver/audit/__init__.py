"""The audit log, its policy and its files."""
