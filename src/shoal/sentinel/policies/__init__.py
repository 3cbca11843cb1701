"""Services for policies beside Envoy's own filters: API key checks, strict rate limits, redaction of logs."""
