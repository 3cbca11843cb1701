"""Writing and watching single Kubernetes objects for both controllers: ownership, versions, drift."""
