"""Where a server comes from: a command, an address, a package, a bundle or a registry, turned into an entry."""
