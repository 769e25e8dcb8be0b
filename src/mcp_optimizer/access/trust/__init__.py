"""Pins tools as they were approved: detects changes, holds them for approval, and notes suspicious definitions."""
