"""What the user configured: settings, the server file, the clients' files, packages of servers. Starts nothing."""
