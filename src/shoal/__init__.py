"""Shoal runs applications over many Kubernetes clusters as if they were one."""

__version__ = "0.1.0"
