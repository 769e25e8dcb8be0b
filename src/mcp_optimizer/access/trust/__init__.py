"""What tools were when they were approved: pins, changes that wait for approval, notes on suspicious definitions."""
