"""Generated from proto/ by scripts/generate_wire.sh; never edited."""
