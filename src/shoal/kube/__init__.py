"""Kubernetes objects as data: schemas, codecs, selectors, defaulting, validation, patches, tables. Pure: nothing here
waits, reads a clock or draws a random number."""
