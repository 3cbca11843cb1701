"""The node agent: runs the pods that are bound to a node, on a runtime of choice, and reports as kubelet does."""
