"""What runs the whole of ChatMind on one machine."""
