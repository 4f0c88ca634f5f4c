"""Measure the phases of the rollout's strategy, and ``ivhl.rollout`` beside what others write.

``python -m studies.rollout`` times the phases (``nox -s rollout``, in ``envs/rollout/``);
``python -m studies.rollout.parts`` times parts of the operator alone.
"""
