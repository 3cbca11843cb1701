"""One pod on a node: what it needs (plan), what is said about it (status), and the worker that does both."""
