"""The filtering proxy: an unmodified controller behind it sees, and may write, only its shard's share."""
