"""NetworkPolicy between pods that have a network of their own.

``plan`` makes rules from policies, pods and namespaces. Whoever sees a connection enforces them: ``packets`` is for the
kernel's packet filter, which sees packets between pods, and ``Rules.allow`` for the service proxy and for DNS.
"""
