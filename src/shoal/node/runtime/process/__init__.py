"""The ``process`` runtime: containers are processes of this machine, started without root and without images.

Each container has a shim (``shim``) that lives as long as it does, so that the agent can die and come back. Pods have
loopback addresses of their own (``addresses``); volumes are at their places where user namespaces work (``launch``);
what an image stands for is looked up in a table (``images``).
"""
