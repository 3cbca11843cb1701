"""Commands on the navigator, the view of all clusters: queries, services, mesh, logs, differences."""
