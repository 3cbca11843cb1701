"""The patches a client can send: JSON Patch, JSON Merge Patch and Kubernetes' strategic merge patch."""
