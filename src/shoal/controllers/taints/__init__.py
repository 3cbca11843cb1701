"""Evicts pods from nodes whose NoExecute taints they do not tolerate, or no longer tolerate."""
