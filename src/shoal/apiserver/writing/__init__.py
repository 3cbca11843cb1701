"""The steps of every write of an object, from a verb to the store."""
