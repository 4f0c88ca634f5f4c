"""Studies with ivhl, run by nox sessions of this repository; not part of the wheel.

``peers`` compares with other libraries, ``founding`` runs the founding benchmark again, ``training``
makes the weights of ``ivhl.mlff``, ``throughput`` counts molecules per second, ``tables`` keeps the
tables of the docs equal to the records.
"""
