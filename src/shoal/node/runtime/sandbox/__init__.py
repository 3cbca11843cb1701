"""The ``sandbox`` runtime: each pod has namespaces of its own (mounts, processes, network, IPC, host name), inside one
user namespace per cluster; no root, no engine and no images are needed.

``isolation`` is what the runtime of processes uses in place of sharing the machine. A process per cluster (``helper``)
owns the namespaces and survives the agents. What pods see as their root comes from a ``RootSource`` (``roots``), their
addresses and sockets from a ``PodNetwork`` (``network``).
"""
