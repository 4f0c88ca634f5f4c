"""Compare our operations with those of other libraries, on the same inputs, in one process.

``nox -s peers`` runs it in its own environment, ``envs/peers/``. A suite is data
(``studies.peers.suite``). Each library is imported only for its own rows, so that a missing or
broken library makes only these rows ``unavailable``.
"""
