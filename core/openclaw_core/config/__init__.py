"""One frozen pydantic model per section of the resource; the CRD, chart schema and docs are generated from them."""
