"""What agents report, and what it does to the rows it speaks of."""
