"""The worker: the agent on a host, its slots, engines and samplers."""
