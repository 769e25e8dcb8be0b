"""JSON of any size, read and written without turning all of it into objects."""
