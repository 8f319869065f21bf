"""Options that several commands have: their arguments, their declared types, and what they check."""
