"""The manager: makes shards, shares the slots out among them, watches over them."""
