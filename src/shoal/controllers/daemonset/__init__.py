"""DaemonSet: a pod on every node that can have one."""
