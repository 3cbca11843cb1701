"""Istio's control plane: istiod's Deployments and their mesh configuration."""
