"""Authorization: RBAC, the node authorizer, role aggregation and the privilege escalation check."""
