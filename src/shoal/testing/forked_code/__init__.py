"""``python -m shoal.testing.forked_code CODE …`` runs code in a process that a fork server may fork, as programs of
ours are: what it sees and may do is that of any of them.

    PodForks(folder, listed=forked_code.__name__)
"""

MODULES = ("shoal.node.runtime.process.forked_shim",)
PACKAGES = (__name__,)
