"""Keeps bases, documents and chunks: in PostgreSQL, and in memory with the same behaviour."""
