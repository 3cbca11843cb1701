"""The volumes of pods: their content, their folders on the node, and their updates."""
