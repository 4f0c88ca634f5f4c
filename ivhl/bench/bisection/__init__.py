"""Find the commit or release that changed a case, by measuring (``ivhl bisect``)."""
