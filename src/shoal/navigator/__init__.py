"""The navigator: one live view of the objects of all clusters, with queries."""
