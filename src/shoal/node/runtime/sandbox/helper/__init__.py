"""The process of a cluster that owns the namespaces of its sandboxes, and what it forks: shims of containers.

It runs as ``python -I -S`` and imports only built-in and very small modules. Each shim is a fork of it, so that all
share their memory, and each pod would pay for every import. Nothing here may import the rest of Shoal, except
``shoal.node.runtime.process.shim``.

    in:   ``config`` in its folder (marshal), requests on the socket ``helper.sock`` (``requests`` names them)
    out:  namespaces as open files, shims, sockets inside the namespaces (SCM_RIGHTS), ``shims``
"""
