"""Files that a run leaves behind, as models; writers and readers both go through them."""
