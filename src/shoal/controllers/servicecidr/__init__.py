"""ServiceCIDR and IPAddress: ranges of service addresses, and the records of who has which."""
