"""Calls between services, from the counters of the cluster's own proxies: Shoal's gateways, and Istio's if wanted."""
