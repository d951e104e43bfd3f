"""Models, batches and the checks of vectors; free of any transport or engine."""
