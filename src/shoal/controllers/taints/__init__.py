"""Drives pods away from nodes whose NoExecute taints they do not tolerate, or not for that long."""
