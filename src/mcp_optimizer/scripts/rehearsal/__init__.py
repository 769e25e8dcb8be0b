"""Goes through a script before it runs, with kinds in the place of values, and reports what certainly fails."""
