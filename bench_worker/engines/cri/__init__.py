"""The engine `cri`: the Kubernetes container runtime interface."""
