"""Deletes objects whose owners are gone, with the propagation policy of the owner's deletion."""
