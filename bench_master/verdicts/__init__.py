"""Verdicts: whether treatments differ, by how much, and how far to trust it. Pure: numbers in, numbers out."""
