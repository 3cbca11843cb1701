"""Many active workers for one controller: slots, who owns them, and how they move."""
