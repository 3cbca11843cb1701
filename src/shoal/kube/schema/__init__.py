"""Types of the built-in kinds, compiled at set-up from a published schema package, and the shape all types share."""

from shoal.kube.schema.builtin import kubernetes_version, type_of, type_of_kind
from shoal.kube.schema.model import ANY, Field, Form, Type

__all__ = ["ANY", "Field", "Form", "Type", "kubernetes_version", "type_of", "type_of_kind"]
