"""Pages of charts and tables, for ``bgsoft bench --plot`` and ``bgsoft compare --plot``."""
