"""From what a gateway knows to what its Envoy is told. Pure: nothing here waits, reads a clock or opens anything."""
