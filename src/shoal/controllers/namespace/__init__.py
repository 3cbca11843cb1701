"""Deletes the content of terminating namespaces, pods first, and then finalizes them."""
