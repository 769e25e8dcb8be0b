"""What others notice of attacks, of bad servers and of very many servers."""
