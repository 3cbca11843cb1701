"""Job: runs pods to completion, a given number of times."""
