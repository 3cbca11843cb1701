"""The kinds people apply: a typed spec each, read and checked from what they wrote."""
