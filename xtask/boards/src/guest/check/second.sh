# The following lines are for the second of two guests.
number=2
