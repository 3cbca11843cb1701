"""What the fleet is about: the kinds people apply, revisions, placement, readiness, and the use cases over them."""
