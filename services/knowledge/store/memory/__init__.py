"""Every store in memory, with the behaviour of those in PostgreSQL."""
