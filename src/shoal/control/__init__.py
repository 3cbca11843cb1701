"""The fleet's control plane: stores desired state, sends it to the clusters' agents and records what they report."""
