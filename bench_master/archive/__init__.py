"""The archive: every run that was added, found again by what it measured, when and where.

Stats files are the truth: they are kept under the hash of their content. The database is an index of them, which
`rebuild` makes anew; what people typed is in a file beside them. Nothing is sent anywhere.
"""
