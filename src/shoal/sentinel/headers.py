"""HTTP headers that gateways set and read."""

from __future__ import annotations

ERROR_HEADER = "x-shoal-error"  # of answers: the stable code of what a gateway refused
DEPLOYMENT_HEADER = "x-deployment-id"  # of requests: the deployment that a client asks for
TARGET_HEADER = "x-shoal-deployment"  # of requests to instances and peers: the deployment that was chosen
PRINCIPAL_HEADER = "x-shoal-principal"  # of requests to instances: the authenticated client, as JSON
# Prefixes that only gateways may use; they are removed from requests of clients. Many apps treat _ and - alike.
OWN_HEADERS = ("x-shoal", "x_shoal")
