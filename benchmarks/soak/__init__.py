"""A long run under load: nothing is lost, nothing happens twice, nothing is left over."""
