"""Deployment: rolls from one template to the next by scaling ReplicaSets."""
