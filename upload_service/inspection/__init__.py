"""What an uploaded installer says of itself, read in a process of its own that can open nothing.

`inspector` takes files one after another; `process` starts this package's `__main__` for each, which lets itself be
confined and then reads: `msi`, `executables`, `archives` and `signers` know the formats, `findings` what is told.
"""
