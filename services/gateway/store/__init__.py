"""Stores for API keys."""
