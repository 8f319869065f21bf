"""The fleet: hosts in a file, and workers on them. `load_inventory` reads the file, launchers start the workers."""
