"""Our own kinds in a cluster: their definitions, and typed views for those who write and those who read them."""
