"""``drivetrain suite``: one template, many variants and seeds, on this machine or a cluster.

What is to be trained is planned and checked whole (`search`, `plan`), matched with what an
earlier start left (`standing`), and driven by one of two backends (`local`, `cluster`).
"""
