"""Deletes objects whose owners are gone, in the order and the way that the deletion of the owner asked for."""
