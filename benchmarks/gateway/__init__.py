"""What the gateway adds to a call, how many clients it serves, and what its process holds."""
