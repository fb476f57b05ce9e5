"""The stats tracker: scopes, denominators, reductions, collectives; diagnostics are fed through it."""
