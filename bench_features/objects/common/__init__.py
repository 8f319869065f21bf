"""What master and worker share about jobs on object stores: what a job is, and how a store is reached."""
