"""The cluster service, which the clusters' agents call: it streams desired state and stores their reports."""
