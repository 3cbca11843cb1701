"""Probes of containers: handlers, interpretation of results, and the tasks that run them."""
