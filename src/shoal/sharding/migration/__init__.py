"""Moving slots between live shards, with what their handlers remember."""
