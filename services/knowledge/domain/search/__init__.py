"""Finding chunks: one leg for each way to find them, and what becomes of their finds."""
