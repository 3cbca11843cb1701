"""May they: RBAC and the rules of nodes, how a refusal is worded, and what keeps roles in order."""
