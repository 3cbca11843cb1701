"""Who did what: the audit log, its policy and its files."""
