"""Code that both ends of a stream of desired state share, without I/O: versions, cursors, digests, buffers."""
