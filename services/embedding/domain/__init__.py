"""Models, batches and what counts as a vector; knows no transport and no engine."""
