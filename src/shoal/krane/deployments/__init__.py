"""Deployments of apps in the cluster: rendered to Kubernetes objects, applied, and observed."""
