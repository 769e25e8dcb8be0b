"""Tool search: words, a lexical index by field, encoders, and the engine that ranks the tools of a snapshot."""
