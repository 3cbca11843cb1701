"""The edge: watches one cluster and streams what it sees to the manager."""
