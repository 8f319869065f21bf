"""What the worker reads about its host: /proc, samples, daemons, facts, fingerprint."""
