"""With what status a reading process ends that found nothing; others are of Python's or the system's own making."""

DAMAGED = 3
OUT_OF_MEMORY = 4
