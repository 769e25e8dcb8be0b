"""Everything but tools between clients and servers: resources, prompts, completion, log messages, changes."""
