"""What machine this is and how steady it is: CPU, memory, disk, GPUs, compiler. Read-only.

Only the standard library: ``ivhl.measure`` needs it in every cell.
"""
