"""Configuration files as text: read, changed in one place while every other byte stays, and written safely."""
