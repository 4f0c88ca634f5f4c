"""Make the weights of ``ivhl.mlff`` by one command: labels, training, model card.

``nox -s train-mlff`` runs it in an environment of its own, ``envs/train/``. Labels are GFN2-xTB, by
tblite. What is computed is kept in a folder, so that a run which was killed goes on.
"""
