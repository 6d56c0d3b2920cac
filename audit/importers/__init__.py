"""What another tool recorded, read: a finished run, or cases to replay."""
