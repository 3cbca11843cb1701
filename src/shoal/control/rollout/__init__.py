"""How a new revision of an app replaces the old one, region by region. Pure."""
