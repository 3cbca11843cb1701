"""The service proxy: serves cluster IPs and node ports of a cluster whose pods run on this machine, without root.

Services of such a cluster have loopback addresses, so that the proxy can listen on them. ``plan`` computes the
listeners and their backends, ``reconcile`` opens and closes them, ``tcp`` and ``udp`` relay the traffic. The relays are
in a process of their own, ``serve``, which ``process`` starts and finds again.
"""
