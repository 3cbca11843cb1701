"""metrics.k8s.io: what nodes and pods use right now, from what kubelets tell about themselves."""
