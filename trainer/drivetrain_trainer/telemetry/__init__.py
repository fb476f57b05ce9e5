"""The one training logger: each metric is submitted once and feeds backend and terminal."""
