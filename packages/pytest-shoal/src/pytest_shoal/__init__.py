"""A Kubernetes API for tests: fixtures in ``pytest_shoal.plugin``."""
