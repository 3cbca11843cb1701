"""Whose turn it is: priority levels, flow schemas, fair queues, token buckets."""
