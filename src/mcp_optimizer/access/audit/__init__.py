"""What happened: who did what, what allowed it and how it ended, written to a table and to a file."""
