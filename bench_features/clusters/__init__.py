"""Clusters whose schedulers start workers: Slurm, Docker Swarm and Kubernetes."""
