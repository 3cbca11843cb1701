"""Analysis of Istio configuration: the resources that act on a workload, and mistakes. Pure."""
