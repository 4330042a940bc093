//! Hardware-in-the-loop tests.
