"""What both ends of a stream of desired state share, and nothing that waits: versions, cursors, digests, buffers."""
