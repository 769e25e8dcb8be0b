"""Who may do what: callers, rules, the trail, and what was approved of servers' tools."""
