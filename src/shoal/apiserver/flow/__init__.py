"""Flow control: priority levels, flow schemas, fair queues, token buckets."""
