"""Chrome traces: what each process and thread did when, bounded, readable after any end."""
