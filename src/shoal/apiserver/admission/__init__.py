"""Admission: plugins that change or reject a write after authorization and before it is stored.

``chain`` runs the built-in plugins (``builtin``), which are synchronous and work on the server's own memory, and the
dynamic ones (``policies`` in CEL, ``webhooks``), which users configure with objects. ``model`` has their types.
"""
