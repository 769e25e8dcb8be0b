"""What a caller may do: how risky a tool is, which rule applies, how often, and what a person is asked."""
