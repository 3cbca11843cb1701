"""The manager: receives the streams of all edges, stores their rows and indexes them for queries."""
