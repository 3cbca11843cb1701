"""One pod on a node: its next actions (plan), its status, and the worker that runs both."""
