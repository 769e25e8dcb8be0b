"""Transports that carry messages to one server and back: stdio with a child process, streamable HTTP, and SSE."""
