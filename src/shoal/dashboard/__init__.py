"""The page: the fleet in a browser. Its files, logging in, and streams of what it shows; served by a control plane."""
