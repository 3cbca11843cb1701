"""Custom resources: their definitions, and the handling of their objects.

validation.py   is a CustomResourceDefinition acceptable (schema_rules.py: its schemas)
definition.py   defaults, resources, names and conditions of a definition
structural.py   a schema compiled: prune, default, validate, and the Type that patches and apply use
serving.py      the rules, columns, selectors and scale of one served version
openapi.py      the schema as published
"""
