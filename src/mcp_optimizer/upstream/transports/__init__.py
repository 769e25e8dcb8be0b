"""Carries messages to one server and back: child processes over stdio, streamable HTTP, and the SSE transport."""
