"""How attacks, bad servers and very many servers affect everyone else."""
