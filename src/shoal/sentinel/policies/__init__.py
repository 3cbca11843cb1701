"""What policies need beside Envoy's own filters: who judges keys, who counts strict limits, what logs must not show."""
