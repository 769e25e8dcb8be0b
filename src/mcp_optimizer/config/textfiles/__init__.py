"""Configuration files of people: read, edited without touching any other byte, and replaced safely."""
