"""Configuration files of people: read, edited without changing any other byte, and replaced safely."""
