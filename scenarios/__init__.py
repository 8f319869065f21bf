"""Ready-made scenarios, shipped as package data."""
