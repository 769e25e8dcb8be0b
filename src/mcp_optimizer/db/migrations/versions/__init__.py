"""The numbered steps of the schema, oldest first."""
