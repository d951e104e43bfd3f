"""Runs all of ChatMind on one machine."""
