"""Object stores: the protocols, their HTTP client, and what a worker keeps of the objects that it made.

`runner.StoreRunner` is what the rest of a worker sees of them.
"""
