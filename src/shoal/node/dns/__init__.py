"""Cluster DNS for pods that have a network of their own: names of Services and pods.

``plan`` makes the names of a Service from the API's objects, ``table`` answers questions from them, ``codec`` is the
protocol, and ``server`` has the sockets. The server runs in the proxy process, which serves the last table that it was
told also while the cluster's process is away.
"""
