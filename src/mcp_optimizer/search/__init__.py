"""Finding tools: words, a fielded lexical index, and the engine that ranks over one snapshot."""
