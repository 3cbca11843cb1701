"""ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, for its rollouts and for undoing them."""
