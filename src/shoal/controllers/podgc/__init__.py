"""Removes pods that no other component removes: of deleted nodes, unscheduled terminating ones, and old finished
ones."""
