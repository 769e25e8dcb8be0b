"""What results cost: large ones, small ones, estimates of their tokens, and reading on with read_result."""
