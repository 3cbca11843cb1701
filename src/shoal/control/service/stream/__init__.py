"""Streams to agents: the session machine, its driver, the senders, and the hub that follows the databases."""
