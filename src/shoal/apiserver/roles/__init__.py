"""ClusterRoles and bindings that the server itself maintains: the default ones, and aggregated rules."""
