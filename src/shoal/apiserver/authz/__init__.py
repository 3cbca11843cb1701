"""May they: role-based access control, and what it says of a request that is refused."""
