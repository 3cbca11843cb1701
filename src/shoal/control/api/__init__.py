"""The REST API of the fleet: a thin shell over ``shoal.control.domain``."""
