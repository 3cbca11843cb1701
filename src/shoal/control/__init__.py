"""The fleet's control plane: what should run where, told to the agents of the clusters, and what really runs."""
