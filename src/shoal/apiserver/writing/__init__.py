"""The steps that every write of an object passes on its way from a verb to the store."""
