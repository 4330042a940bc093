# This guest is the second of two. Its addresses end with this number.
number=2
