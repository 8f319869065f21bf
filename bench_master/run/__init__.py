"""The shell round the coordinator: sockets, local workers, the journal and the screen of one run."""
