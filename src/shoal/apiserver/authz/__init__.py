"""Authorization: RBAC, the node authorizer and the privilege escalation check."""
