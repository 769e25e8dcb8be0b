"""What a result costs and how much of it a model gets: metadata, limits, the store, the cache, encodings, prices."""
