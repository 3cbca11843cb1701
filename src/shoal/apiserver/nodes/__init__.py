"""Access to nodes and pods through the API server: logs, exec, attach, port-forward, proxies."""
