"""One machine instead of a cluster: objects are files, and a Job's pods are process trees."""
