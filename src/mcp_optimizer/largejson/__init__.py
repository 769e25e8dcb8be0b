"""JSON of any size, read and written without making objects of all of it."""
