"""Pages that a program of ours serves: who may see them, and the page that shows a run while it runs."""
