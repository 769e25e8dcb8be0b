"""The web page: savings, servers, tools and current activity; also the report as a single file."""
