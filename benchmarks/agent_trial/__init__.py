"""What a language model reads when it does thirty tasks over real servers in one conversation."""
