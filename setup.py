"""Thin shim: everything about the package is in pyproject.toml."""

from setuptools import setup

setup()
