"""A long run under load, while servers are killed and clients leave."""
