"""Folders kept in S3 by their content: trees, chunks, packs, manifests."""
