"""The ``docker`` runtime: containers of a Docker engine, or of podman, through the Docker Engine API on a Unix socket.

A pod is a container that does nothing (``pause``) and owns the network; the pod's containers join it. All that has to
outlive the agent is in the labels of containers, so that the engine itself is the only record.
"""
