"""What every place should have: read from the databases, indexed, and rendered for agents."""
