"""The node's own HTTPS endpoints, which the API server asks for logs, sessions, ports and statistics."""
