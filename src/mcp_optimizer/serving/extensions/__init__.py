"""The extensions of the protocol that the gateway carries: one file each, all joined in `announcing`."""
