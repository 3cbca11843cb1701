"""The service proxy: cluster IPs and node ports of a cluster whose pods are on this machine, without root.

Services of such a cluster have addresses of the loopback network, so that they can be listened on. ``plan`` says what
to listen on and where it leads, ``reconcile`` does it, ``tcp`` and ``udp`` carry the bytes.
"""
