"""The web page: savings, servers, tools and current activity; and the report as one file."""
