"""HTTP/2 for the API server: many requests and watches on one connection. Part of ``apiserver.http``."""
