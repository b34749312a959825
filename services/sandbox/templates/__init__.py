"""Makes templates out of recipes: small files, shipped here in `recipes` or an operator's own."""
