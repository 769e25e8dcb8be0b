"""Real clients, installed from their registries, against a scripted model: see `__main__`."""
