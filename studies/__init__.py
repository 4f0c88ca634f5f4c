"""Studies with ivhl, run by nox sessions of this repository; not part of the wheel.

``peers`` compares with other libraries, ``founding`` repeats the founding benchmark, ``training``
trains the weights of ``ivhl.mlff``, ``throughput`` times batches of molecules, ``tables`` keeps the
tables of the docs equal to the records.
"""
