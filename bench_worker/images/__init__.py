"""Makes the images that scenarios use, from the recipes in `dockerfiles`, with or without a registry in reach."""
