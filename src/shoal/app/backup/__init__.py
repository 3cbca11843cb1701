"""Backups of clusters, control planes and navigators: one file with everything that cannot be made anew."""
