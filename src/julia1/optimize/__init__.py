"""Makes a model smaller and faster, and proves that it kept its accuracy. Needs the extra ``optimize``."""
