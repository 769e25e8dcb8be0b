"""A script is gone through before it runs, with kinds in the place of values: what certainly fails is told."""
