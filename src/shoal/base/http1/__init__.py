"""HTTP/1.1 for everything that is not the API server's own front: one connection for clients, one small server.

``connection`` carries one request at a time and owns the framing of answers, their limits and deadlines; ``dial`` opens
connections over TCP, TLS and Unix sockets; ``channel`` carries an exchange over anything else that can be read and
written; ``server`` is the other side. This module imports none of them: a process loads what it uses.
"""
