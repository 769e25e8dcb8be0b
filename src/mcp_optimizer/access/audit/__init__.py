"""The audit: records who did what, what allowed it and how it ended, in a table and in a file."""
