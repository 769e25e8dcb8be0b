"""Access control: callers, rules, the audit trail, and approvals of servers' tools."""
