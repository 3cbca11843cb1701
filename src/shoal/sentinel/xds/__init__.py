"""How Envoy is told: the delta protocol as a machine without I/O, and its gRPC server."""
