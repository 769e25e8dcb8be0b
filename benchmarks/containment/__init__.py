"""What other servers and clients notice of hostile, bad or very many servers."""
