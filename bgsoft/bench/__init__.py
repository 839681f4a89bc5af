"""``bgsoft bench``: how fast a machine renders, and where the time goes.

Every figure comes from the pipeline and the stages that ``bgsoft render`` runs.
"""
