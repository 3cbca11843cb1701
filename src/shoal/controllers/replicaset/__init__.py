"""ReplicaSet: so many pods of a template, always."""
