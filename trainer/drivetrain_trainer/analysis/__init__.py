"""Reading runs after the fact: event files, curves, diagnosis. Nothing here imports torch."""
