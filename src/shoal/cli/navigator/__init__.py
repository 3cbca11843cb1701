"""Commands over the view of all clusters: queries, services, the mesh, logs, what changed."""
