"""Answers over all clusters: services, workloads, queries, differences; as functions and over REST."""
