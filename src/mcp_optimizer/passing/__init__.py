"""What passes between clients and servers besides tools: resources, prompts, completion, log messages, changes."""
