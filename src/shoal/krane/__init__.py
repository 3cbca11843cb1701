"""The agent of a cluster: makes the cluster equal to what the control plane desires, and tells it what really runs."""
