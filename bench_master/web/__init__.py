"""What pages of ours have in common: where they are served, who may see them, and a server with limits."""
