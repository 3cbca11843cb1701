"""OpenAPI documents of all served resources: version 3 (one document per group version) and version 2."""

from shoal.kube.openapi.service import JSON, V2_PROTOBUF, OpenApi, OpenApiAnswer

__all__ = ["JSON", "V2_PROTOBUF", "OpenApiAnswer", "OpenApi"]
