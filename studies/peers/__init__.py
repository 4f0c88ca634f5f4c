"""Our operations beside those of other libraries, on the same inputs, in one process.

``nox -s peers`` runs it in an environment of its own, ``envs/peers/``. A suite is data
(``studies.peers.suite``); the other libraries are imported only while their rows are made, so that
one which is missing or broken is a row that says so.
"""
