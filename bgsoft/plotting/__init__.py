"""Charts and pages drawn without a plotting library, as HTML or PNG."""
