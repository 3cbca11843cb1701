"""DaemonSet: one pod on every eligible node."""
