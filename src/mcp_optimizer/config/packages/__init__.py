"""The sources of servers (command, address, package, bundle, registry), turned into entries."""
