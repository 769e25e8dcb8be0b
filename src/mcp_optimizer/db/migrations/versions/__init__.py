"""The numbered migrations of the schema, oldest first."""
