"""Modules that read hostile bytes, each run in a process of its own with little memory and time.

`process` starts a module and returns its output. The module calls `confinement.confine` before it reads its input.
"""
