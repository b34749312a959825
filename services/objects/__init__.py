"""S3: blobs by digest."""
