"""A user's labelled rows: reading, cleaning, duplicates, splits and checks. Part of it needs the ``train`` extra."""
