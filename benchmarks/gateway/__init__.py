"""What the gateway adds to a call, how many clients it serves, how much memory it takes."""
