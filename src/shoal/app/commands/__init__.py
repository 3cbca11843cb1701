"""The commands that start, stop and examine processes; each module is loaded only when its command runs."""
