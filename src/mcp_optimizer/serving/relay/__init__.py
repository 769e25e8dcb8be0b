"""Passes everything except tools between clients and servers: resources, prompts, completion, log messages, changes."""
