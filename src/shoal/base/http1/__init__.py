"""HTTP/1.1 for everything except the API server's own listener: a client connection and a small server.

``connection`` carries one request at a time and owns the framing of answers, their limits and deadlines; ``dial`` opens
connections over TCP, TLS and Unix sockets; ``channel`` carries an exchange over anything else that can be read and
written; ``server`` is the other side. This module imports none of them: a process loads what it uses.
"""
