"""Istio's control plane as the edge finds it: istiod's Deployments and the mesh configuration they read."""
