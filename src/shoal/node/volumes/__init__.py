"""The volumes of pods: what is in them, where they lie on the node, and how they are kept up to date."""
