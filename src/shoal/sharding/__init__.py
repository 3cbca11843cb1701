"""Many active workers for one controller: slots, their owners, and their moves."""
