"""Clusters, fleets, builders and faults for tests of controllers and clients, and for Shoal's own tests.

| to test with | see |
|---|---|
| an API server in this process, or as a process | ``shoal.testing.servers`` |
| a whole cluster with simulated nodes | ``shoal.testing.clusters`` |
| a controller, with pods that are only played | ``shoal.testing.controllers`` |
| a fleet of processes with control plane and agents | ``shoal.testing.fleets`` |
| PostgreSQL and Redis | ``shoal.testing.databases`` |
| faults as fixtures, from one seed | ``shoal.testing.faults`` |
| broken connections | ``shoal.testing.proxy`` |
| full disks and torn files | ``shoal.testing.disks`` |
| wrong clocks | ``shoal.testing.clocks`` |
| a process with a wrong clock or a failing disk | ``shoal.testing.faulty_process`` |
| a fleet whose connections break | ``shoal.testing.broken_fleet`` |
| watches that lose events | ``shoal.testing.losses`` |
| waiting for a condition | ``shoal.testing.waiting`` |
"""
