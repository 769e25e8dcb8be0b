"""Limits results, keeps and caches them, and reports their cost: metadata, encodings, selections, prices."""
