"""Answers over all clusters: services, workloads, queries, differences; as functions, REST and text."""
