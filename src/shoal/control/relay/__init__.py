"""The relay of a region: serves the agents of the region from memory, over one stream per kind to the control plane."""
