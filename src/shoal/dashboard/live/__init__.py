"""Streams of rows that change: what is the same for many pages is computed once, and only differences travel."""
