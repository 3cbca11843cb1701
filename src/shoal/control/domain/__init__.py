"""The fleet's domain: the kinds users apply, revisions, placement, readiness, and the use cases."""
