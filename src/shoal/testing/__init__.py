"""Clusters, fleets, builders and faults for tests of controllers and clients, and for Shoal's own tests.

| to test with | see |
|---|---|
| an API server in this process, or as a process | ``shoal.testing.servers`` |
| a whole cluster with simulated nodes | ``shoal.testing.clusters`` |
| a controller, with pods that are only played | ``shoal.testing.controllers`` |
| a fleet of processes with control plane and agents | ``shoal.testing.fleets`` |
| PostgreSQL and Redis | ``shoal.testing.databases`` |
| broken connections | ``shoal.testing.proxy`` |
| watches that lose events | ``shoal.testing.losses`` |
| waiting for a condition | ``shoal.testing.waiting`` |
"""
