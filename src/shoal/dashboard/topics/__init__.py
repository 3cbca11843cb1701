"""What pages can follow, one module per group of topics."""
