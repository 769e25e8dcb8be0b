"""The web page: what is saved, what is there, what happens; and the report as one file."""
