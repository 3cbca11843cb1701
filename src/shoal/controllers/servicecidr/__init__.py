"""ServiceCIDR and IPAddress: ranges of service addresses, and the records of allocated ones."""
