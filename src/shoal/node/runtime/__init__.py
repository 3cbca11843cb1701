"""Container runtimes of the node agent. ``model`` is the interface; each folder beside it is one implementation."""
