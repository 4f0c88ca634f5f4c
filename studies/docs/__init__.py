"""The documentation as a site: ``python -m studies.docs`` builds it with Sphinx; docs/adr/0049."""
