"""Persistent metric backends; they keep each reported value unsmoothed."""
