"""The program that runs one container, so that the container survives the agent.

It runs as ``python -I -S`` and imports only built-in and very small modules: there is one such process per container,
and each pays for its imports. Nothing here may import the rest of Shoal.

    in:   ``config`` in the container's folder (marshal, made by the runtime), requests on the socket ``shim.sock``
    out:  ``state`` (the processes), ``log`` and its rotated files (CRI format), ``exit`` (how the container exited)
"""
