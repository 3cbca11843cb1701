"""Field ownership: FieldsV1 sets, the managedFields of plain writes, and server-side apply."""
