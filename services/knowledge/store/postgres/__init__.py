"""Every store in PostgreSQL."""
