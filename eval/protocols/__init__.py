"""A module or a folder for each family of protocols."""
