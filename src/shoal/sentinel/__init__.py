"""Sentinels: the gateways that carry an environment's traffic to the instances of its deployments."""
