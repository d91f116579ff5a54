"""Print the page: `python -m fault_matrix > docs/what-happens-when.md`, or `make docs`."""

from fault_matrix.page import page

print(page(), end="")
