"""The ``process`` runtime: containers are processes of this machine, started without root and without images.

Each container has a shim (``shim``), a process that lives as long as the container and survives the agent. Every pod
has a loopback address of its own (``addresses``). Volumes are mounted at their paths if the machine allows user
namespaces (``launch``). A table maps the name of an image to a program (``images``).
"""
