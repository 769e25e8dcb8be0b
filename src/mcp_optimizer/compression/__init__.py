"""Making definitions smaller with all of their function kept: schemas, signatures, descriptions."""
