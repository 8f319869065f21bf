"""Features: one folder each, with all that it has of both sides and of what they share, found by entry points.

What is outside this package imports none of them and works without any.
"""
