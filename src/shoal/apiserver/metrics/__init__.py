"""metrics.k8s.io: current resource usage of nodes and pods, from kubelet statistics."""
