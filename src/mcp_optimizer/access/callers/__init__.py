"""Who calls over HTTP: API keys, tokens, and the door that asks for one of them."""
