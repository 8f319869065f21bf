"""The engines that speak the Docker API, `docker` and `podman`, and `docker-cli`."""
