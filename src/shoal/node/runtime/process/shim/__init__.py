"""The program that stands between the agent and one container, so that the agent can die and come back.

It runs as ``python -I -S`` and imports only modules that the interpreter has built in or that are close to it: there is
one such process per container, and what it imports is paid for as often. Nothing here may import the rest of Shoal.

    in:   ``config`` in the container's folder (marshal, made by the runtime), requests on the socket ``shim.sock``
    out:  ``state`` (who runs), ``log`` and older parts of it (CRI format), ``exit`` (how it ended)
"""
