"""The API server's way to what runs on nodes: logs, exec, attach, port-forward, proxies."""
