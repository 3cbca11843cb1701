"""What runs containers for the node agent. ``model`` is the seam; each folder beside it is one implementation."""
