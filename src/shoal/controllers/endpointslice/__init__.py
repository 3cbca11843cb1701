"""EndpointSlice: the addresses behind a service that selects pods, in slices of a limited size."""
