"""What results cost: large ones, small ones, token estimates, and reading on with read_result."""
