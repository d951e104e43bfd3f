"""Keys, policy, conversations and streams; free of any transport or driver."""
