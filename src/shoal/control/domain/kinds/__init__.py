"""The kinds users apply: each has a typed spec, read from the user's document and checked."""
