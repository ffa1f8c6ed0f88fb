"""The report: one HTML file that needs nothing else, with plots drawn by our own small code."""
