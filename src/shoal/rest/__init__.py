"""REST APIs from declared operations: routes, checks, errors, streams and the OpenAPI document come from types."""
