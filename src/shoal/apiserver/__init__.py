"""The Kubernetes-compatible API server: routes, verbs, watch, discovery. It is the only writer of the store."""
