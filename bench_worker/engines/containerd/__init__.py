"""The engine `containerd`."""
