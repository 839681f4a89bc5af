"""``bgsoft bench``: the speed of a machine, and the time of each stage.

Every figure comes from the pipeline and the stages that ``bgsoft render`` runs.
"""
