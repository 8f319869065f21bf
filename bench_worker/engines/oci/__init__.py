"""The engines that run an OCI runtime: `runc`, `crun`, `youki`, `runsc`."""
