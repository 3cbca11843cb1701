"""How a cluster joins a fleet and leaves it: the manifests of its agents, what blocks them, and their upgrades."""
