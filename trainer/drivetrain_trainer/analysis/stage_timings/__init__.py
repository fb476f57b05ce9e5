"""What the timings of experiments say: how long each stage took, and on what hardware."""
