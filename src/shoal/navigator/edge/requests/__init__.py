"""What the manager asks of an edge: logs, events, the configuration of a proxy, who calls whom."""
