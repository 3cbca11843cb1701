"""ValidatingAdmissionPolicy and MutatingAdmissionPolicy: admission in CEL."""
