"""ReplicaSet: keeps a number of pods of a template."""
