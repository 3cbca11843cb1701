"""Job: pods that run to their end, a given number of times."""
