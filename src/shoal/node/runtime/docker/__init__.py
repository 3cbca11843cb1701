"""The ``docker`` runtime: containers of a Docker engine, or of podman, through the Docker Engine API on a Unix socket.

A sandbox is a container that does nothing (``pause``) and owns the pod's network; the pod's containers join it. The
runtime keeps all its state in labels of the engine's containers, so it needs no files of its own.
"""
