"""GPU measurements in a report: text, tables, charts."""
