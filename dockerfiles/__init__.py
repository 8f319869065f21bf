"""Recipes of the images that the scenarios use, shipped as package data."""
