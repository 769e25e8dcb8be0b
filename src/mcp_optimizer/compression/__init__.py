"""Makes definitions smaller without losing function: schemas, signatures, descriptions."""
