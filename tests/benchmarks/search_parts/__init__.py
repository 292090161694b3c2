"""Parts of the search benchmark: problems with a hidden truth, methods that search them, and the table."""
