"""The frozen values that all rooms exchange: tools, events, callers, names, kept results."""
